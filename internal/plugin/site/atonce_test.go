// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
)

func TestAtOnce_shows_results_in_order_and_waits_little_for_clusters_that_are_away(t *testing.T) {
	const n = 200
	var busy, most atomic.Int32
	var shown []int
	away := func(i int) bool { return i%3 == 0 }
	// The others end when all of them that may run at once do.
	full := make(chan struct{})
	AtOnce(t.Context(), n, away, func(ctx context.Context, i int) int {
		if _, limited := ctx.Deadline(); limited != away(i) {
			t.Errorf("cluster %d has a deadline: %t", i, limited)
		}
		if away(i) {
			return i
		}
		if now := busy.Add(1); now > most.Load() {
			most.Store(now)
			if now == maxAtOnce {
				close(full)
			}
		}
		<-full
		busy.Add(-1)
		return i
	}, func(i, result int) {
		if i != result {
			t.Errorf("cluster %d is shown as %d", result, i)
		}
		shown = append(shown, i)
	})
	if len(shown) != n || !slices.IsSorted(shown) {
		t.Errorf("shown are %v", shown)
	}
	if most.Load() != maxAtOnce {
		t.Errorf("%d clusters were looked into at once, want %d", most.Load(), maxAtOnce)
	}
}
