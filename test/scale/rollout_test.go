// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package scale

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestThousandMembers_in_waves has one change reach a thousand members, whose own time for it is nothing: the first one alone,
// and then batches of a hundred. It must cost at most three writes on the hub for each member, and one second for each batch.
func TestThousandMembers_in_waves(t *testing.T) {
	const members, batches = 1000, 1 + 10
	w := startWorld(t, members, 10)
	w.rest()
	for _, image := range []string{"registry.example.com/redis:2", "registry.example.com/redis:3"} {
		writes, took := w.change("cache-000", image)
		t.Logf("%d members in %d batches: %d writes on the hub, %v", members, batches, writes, took.Round(time.Millisecond))
		if writes > 3*members {
			t.Errorf("%d writes on the hub for %d members", writes, members)
		}
		if took > batches*time.Second {
			t.Errorf("%d batches take %v", batches, took)
		}
	}
}

// change gives a Redis another image, and returns how many versions of the object there are until the hub says that all
// members have it, and how long that takes.
func (w *world) change(name, image string) (int, time.Duration) {
	w.Helper()
	before, began := w.writes(), time.Now()
	object := &flotillav1.Redis{}
	object.Namespace, object.Name = w.namespace, name
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"image":"`+image+`"}}`))
	if err := w.hub.Patch(context.Background(), object, patch); err != nil {
		w.Fatal(err)
	}
	NewWithT(w).Eventually(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		latest := w.latest[name].(*flotillav1.Redis)
		return latest.Generation == object.Generation && latest.Status.ObservedGeneration == object.Generation &&
			latest.Status.Rollout == nil && len(latest.Status.Trials) == 0 && latest.Status.Change == nil &&
			latest.Status.ClusterCounts != nil && latest.Status.ClusterCounts.Ready == int32(w.members)
	}, 5*time.Minute, 20*time.Millisecond).Should(BeTrue(), "all members have the change")
	return w.writes() - before, time.Since(began)
}
