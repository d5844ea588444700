// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// watchStatus follows the status of the Redis on the hub as any client may, and returns what tells the versions that were
// blank or did not add up.
func (f *fleet) watchStatus(t *testing.T) (wrong func() []string) {
	t.Helper()
	c, err := client.NewWithWatch(f.configs["hub"], client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.Watch(f.ctx, &flotillav1.RedisList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	found := make(chan []string, 1)
	go func() {
		var problems []string
		for event := range stream.ResultChan() {
			redis, ok := event.Object.(*flotillav1.Redis)
			if !ok || redis.Name != "cache" {
				continue
			}
			counts := redis.Status.ClusterCounts
			if counts == nil || int(counts.Desired) != f.count || counts.Ready+counts.NotReady+counts.Unknown != counts.Desired ||
				len(redis.Status.Clusters) != f.count || len(redis.Status.PlacedIn) != f.count || len(redis.Finalizers) == 0 {
				problems = append(problems, fmt.Sprintf("%s: %+v %v", redis.ResourceVersion, counts, redis.Status.PlacedIn))
			}
		}
		found <- problems
	}()
	t.Cleanup(stream.Stop)
	return func() []string {
		stream.Stop()
		return <-found
	}
}
