// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// reported is an object with conditions, given as type, status and reason, at a generation.
func reported(generation int64, conditions ...[3]string) *flotillav1.Redis {
	redis := &flotillav1.Redis{}
	for _, c := range conditions {
		redis.Status.Conditions = append(redis.Status.Conditions, metav1.Condition{
			Type: c[0], Status: metav1.ConditionStatus(c[1]), Reason: c[2], ObservedGeneration: generation,
		})
	}
	return redis
}

func TestTransit(t *testing.T) {
	var (
		nothing   = reported(0)
		ready     = [3]string{"Ready", "True", "AllReady"}
		unready   = [3]string{"Ready", "False", "ClustersNotReady"}
		moving    = [3]string{"Progressing", "True", "PlacementPending"}
		pending   = [3]string{"Placed", "False", "PlacementPending"}
		placed    = [3]string{"Placed", "True", "AllPlaced"}
		stalled   = [3]string{"Stalled", "True", "RolloutHalted"}
		recreated = [3]string{"CopyRecreated", "True", "CopyRecreated"}
	)
	for name, tc := range map[string]struct {
		before, after *flotillav1.Redis
		want          time.Duration
	}{
		"copies are being made":        {nothing, reported(1, unready, pending, moving), minTransit},
		"copies are being changed":     {reported(1, ready, placed), reported(2, unready, pending, moving), minTransit},
		"they have got further":        {reported(2, unready, pending, moving), reported(2, unready, placed, moving), minTransit},
		"copies are being removed":     {reported(1, ready, placed), reported(2, [3]string{"Ready", "False", "Deleting"}, [3]string{"Placed", "False", "Deleting"}, [3]string{"Progressing", "True", "Removing"}), minTransit},
		"all of them are ready":        {reported(1, unready, placed, moving), reported(1, ready, placed, [3]string{"Progressing", "False", "Settled"}), 0},
		"a copy cannot be made":        {nothing, reported(1, unready, [3]string{"Placed", "False", "NameConflict"}, moving), 0},
		"a copy ceases to be ready":    {reported(2, ready, placed, moving), reported(2, unready, placed, moving), 0},
		"something waits for a person": {reported(1, ready, placed), reported(2, unready, pending, moving, stalled), 0},
		"and no longer does":           {reported(2, unready, placed, stalled), reported(3, unready, pending, moving), 0},
		"a copy was made again":        {reported(2, unready, placed, moving), reported(2, unready, pending, moving, recreated), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var tr transit
			if wait := tr.hold(types.NamespacedName{Name: "a"}, tc.before, tc.after, noon); wait != tc.want {
				t.Errorf("it waits for %s, want %s", wait, tc.want)
			}
		})
	}
}

func TestTransit_lasts_longer_while_many_objects_change(t *testing.T) {
	var tr transit
	before, after := reported(1), reported(2, [3]string{"Progressing", "True", "PlacementPending"})
	done := reported(2, [3]string{"Progressing", "False", "Settled"})
	key := func(i int) types.NamespacedName { return types.NamespacedName{Name: fmt.Sprint(i)} }
	for i := range 30 {
		tr.hold(key(i), before, after, noon)
	}
	if wait := tr.hold(key(0), before, after, noon.Add(time.Second)); wait != 2*time.Second {
		t.Errorf("with 30 objects it waits for another %s, want 2s of 3s", wait)
	}
	for i := range 1000 {
		tr.hold(key(i), before, after, noon)
	}
	if wait := tr.hold(key(0), before, after, noon); wait != maxTransit {
		t.Errorf("with 1,000 objects it waits for %s, want %s", wait, maxTransit)
	}
	if wait := tr.hold(key(0), before, after, noon.Add(maxTransit)); wait != 0 {
		t.Errorf("after its time it waits for another %s", wait)
	}
	tr.wrote(key(0), noon.Add(maxTransit))
	if wait := tr.hold(key(0), after, after, noon.Add(maxTransit)); wait != maxTransit {
		t.Errorf("the one after waits for %s, want %s", wait, maxTransit)
	}
	for i := range 1000 {
		tr.hold(key(i), before, done, noon)
		tr.wrote(key(i), noon)
	}
	if len(tr.since) != 0 {
		t.Errorf("%d objects are remembered that are settled", len(tr.since))
	}
}

// TestReconcile_a_change_of_spec_is_one_status_when_the_copies_follow tests the cost of a burst of changes for the hub.
func TestReconcile_a_change_of_spec_is_one_status_when_the_copies_follow(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)

	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(4)) })
	if writes, again := f.pass(redis); writes != 0 || again != minTransit {
		t.Errorf("%d writes, again in %s; want none for %s while the copy is on its way", writes, again, minTransit)
	}
	f.clock.Step(100 * time.Millisecond)
	f.place(redis, placed)
	spec(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(4)) })
	status(f, f.member, placed, observed)
	if writes, _ := f.pass(redis); writes != 1 {
		t.Errorf("%d writes when the copy is ready, want one at once", writes)
	}
	f.read(f.hub, redis)
	f.wantConditions(redis, map[string]string{"Ready": "True AllReady", "Progressing": "False Settled"})
}
