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
			uid := types.UID(fmt.Sprint(i))
			if !removals.Allow(uid) {
				refused++
				continue
			}
			if !removals.Allow(uid) {
				t.Fatalf("seed %d: asking again for the same copy costs something", seed)
			}
			deleted = append(deleted, clk.Now())
			if n := len(deleted); n > budget && deleted[n-1].Sub(deleted[n-1-budget]) < removalWindow {
				t.Fatalf("seed %d: more than %d deletions within %s", seed, budget, removalWindow)
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
