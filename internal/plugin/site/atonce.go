// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
)

const (
	// maxAtOnce is the number of clusters that are looked into at a time.
	maxAtOnce = 32
	// unreachablePatience is how long a command waits, in all, for clusters that the hub cannot reach. Perhaps this machine
	// can.
	unreachablePatience = 5 * time.Second
)

// AtOnce looks into n clusters at once and shows each result, in their order, as soon as it and those before it are there.
// away reports whether the hub cannot reach a cluster; look gets less time for it.
func AtOnce[R any](ctx context.Context, n int, away func(i int) bool, look func(ctx context.Context, i int) R, show func(i int, result R)) {
	hurried, cancel := context.WithTimeout(ctx, unreachablePatience)
	defer cancel()
	results := make([]chan R, n)
	var others []int
	for i := range results {
		results[i] = make(chan R, 1)
		if away(i) {
			go func() { results[i] <- look(hurried, i) }()
		} else {
			others = append(others, i)
		}
	}
	go func() {
		var group errgroup.Group
		group.SetLimit(maxAtOnce)
		for _, i := range others {
			group.Go(func() error {
				results[i] <- look(ctx, i)
				return nil
			})
		}
	}()
	for i := range results {
		show(i, <-results[i])
	}
}

// IsAway reports whether the hub cannot reach a member.
func IsAway(member *flotillav1.MemberCluster) bool {
	return condition.Of(member.Status.Conditions, flotillav1.ConditionReachable).Status == metav1.ConditionFalse
}
