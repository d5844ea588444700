// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package scale

import (
	"testing"
	"time"
)

// TestThousandMembers has a thousand transitions of members in ten seconds, with 100 objects in all of them. What one of
// them costs must not grow with the number of members.
func TestThousandMembers(t *testing.T) {
	costs := map[int]cost{}
	for _, members := range []int{100, 1000} {
		func() {
			w := startWorld(t, members, 100)
			costs[members] = w.storm(1000, 10*time.Second)
			w.expectCheap(costs[members], 10*time.Second)
			t.Logf("The hub alone takes %v for one write of each status", w.raw())
		}()
	}
	few, many := costs[100].cpu, costs[1000].cpu
	t.Logf("CPU of 1,000 transitions: %v with 100 members, %v with 1,000", few, many)
	if many > few*3/2 {
		t.Errorf("a transition costs %.2f times as much with ten times as many members", float64(many)/float64(few))
	}
}
