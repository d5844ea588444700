// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package scale

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
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

// raw stops the manager, and measures how long the hub takes for one write of each status with nothing else to do. It is
// what the hub is able to do on this machine.
func (w *world) raw() time.Duration {
	w.Helper()
	w.stop()
	writing, ctx := errgroup.WithContext(context.Background())
	writing.SetLimit(workers)
	began := time.Now()
	for _, object := range w.latest {
		writing.Go(func() error {
			after := object.DeepCopyObject().(fleet.Object)
			(*after.GetConditions())[0].Message = "written again"
			return statuspatch.Write(ctx, w.hub, object, after, statuspatch.SameUID)
		})
	}
	NewWithT(w).Expect(writing.Wait()).To(Succeed())
	return time.Since(began)
}
