// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestRemovals_any_window deletes at random and checks every window that ends with a deletion.
func TestRemovals_any_window(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		budget := random.IntN(8)
		clk := clocktesting.NewFakeClock(waveTime)
		removals := NewRemovals(budget, clk)
		var deleted []time.Time
		refused := 0
		for i := range 500 {
			clk.Step(time.Duration(random.IntN(120)) * time.Second)
			removal, census := Removal{UID: types.UID(fmt.Sprint(i))}, Census{Records: func(ObjectKey, string) bool { return true }}
			if !removals.Allow(removal, nil, census) {
				refused++
				continue
			}
			if !removals.Allow(removal, nil, census) {
				t.Fatalf("seed %d: asking again for the same copy costs something", seed)
			}
			deleted = append(deleted, clk.Now())
			if n := len(deleted); n > budget && deleted[n-1].Sub(deleted[n-1-budget]) < RemovalWindow {
				t.Fatalf("seed %d: more than %d deletions within %s", seed, budget, RemovalWindow)
			}
		}
		if budget > 0 && len(deleted) < budget || refused == 0 {
			t.Errorf("seed %d: budget %d, %d allowed, %d refused", seed, budget, len(deleted), refused)
		}
	}
}

func TestRemovalHeld_lasts_and_a_confirmation_is_for_one_generation(t *testing.T) {
	object := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Generation: 7, Annotations: map[string]string{flotillav1.AnnotationConfirmRemoval: "7"}}}
	object.Status.Conditions = []metav1.Condition{{Type: flotillav1.ConditionRemovalHeld, Status: metav1.ConditionTrue, ObservedGeneration: 7}}
	if !RemovalHeld(object) || !RemovalConfirmed(object) {
		t.Error("want both for this generation")
	}
	object.Generation = 8
	if !RemovalHeld(object) || RemovalConfirmed(object) {
		t.Error("want the next generation held, and not confirmed")
	}
}

func TestRemovals_binds(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	for _, tc := range []struct {
		budget, share, fleet int
		want                 bool
	}{{20, 25, 4, true}, {20, 0, 10, true}, {21, 0, 10, false}, {1000, 25, 10, true}, {0, 0, 0, true}} {
		removals := NewRemovals(tc.budget, clk)
		removals.Share = tc.share
		if removals.Binds(tc.fleet) != tc.want {
			t.Errorf("a budget of %d and a share of %d bind %d copies: %t", tc.budget, tc.share, tc.fleet, !tc.want)
		}
	}
}

func TestRemovals_share(t *testing.T) {
	object := func(name string) ObjectKey { return ObjectKey{Kind: "Redis", Object: types.NamespacedName{Name: name}} }
	tests := map[string]struct {
		budget, share, copies int
		// objects are those that lose all of their copies, one after the other.
		objects []int
		// deleting reports whether the objects are deleted, and not only removed from clusters.
		deleting bool
		want     int
	}{
		"a quarter of the fleet":         {budget: 20, share: 25, copies: 40, objects: []int{2, 2, 2, 2, 2, 2, 2, 2}, want: 10},
		"a quarter of one object":        {budget: 20, share: 25, copies: 400, objects: []int{40}, want: 10},
		"the absolute limit":             {budget: 20, share: 25, copies: 4000, objects: []int{400}, want: 20},
		"at least two of a small fleet":  {budget: 20, share: 25, copies: 3, objects: []int{3}, want: 2},
		"at least two of a small object": {budget: 20, share: 25, copies: 400, objects: []int{3, 3}, want: 4},
		"one object is deleted":          {budget: 20, share: 25, copies: 3, objects: []int{3}, deleting: true, want: 3},
		"objects are deleted":            {budget: 20, share: 25, copies: 15, objects: []int{3, 3, 3, 3, 3}, deleting: true, want: 3},
		"a large object is deleted":      {budget: 20, share: 25, copies: 4000, objects: []int{400}, deleting: true, want: 20},
		"no share":                       {budget: 20, copies: 12, objects: []int{12}, want: 12},
		"no budget":                      {share: 25, copies: 12, objects: []int{12}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(waveTime)
			removals := NewRemovals(tc.budget, clk)
			removals.Share = tc.share
			var recorded []Removal
			gone := map[string]bool{}
			fleetCopies, allowed := tc.copies, 0
			for o, copies := range tc.objects {
				left := copies
				for c := range copies {
					removal := Removal{Key: object(fmt.Sprint(o)), Cluster: fmt.Sprint(c), UID: types.UID(fmt.Sprint(o, "-", c)), At: clk.Now()}
					census := Census{Fleet: fleetCopies, Object: left, Deleting: tc.deleting, Records: func(key ObjectKey, cluster string) bool { return !gone[key.Object.Name+"/"+cluster] }}
					if removals.Allow(removal, recorded, census) {
						// It is gone before the next one is requested, and the process restarts.
						allowed, fleetCopies, left = allowed+1, fleetCopies-1, left-1
						gone[removal.Key.Object.Name+"/"+removal.Cluster] = true
						recorded = append(recorded, removal)
						removals = NewRemovals(tc.budget, clk)
						removals.Share = tc.share
					}
				}
			}
			if allowed != tc.want {
				t.Errorf("%d copies were let go, want %d", allowed, tc.want)
			}
		})
	}
}
