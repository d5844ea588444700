// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"slices"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func ours(r *flotillav1.Redis) bool { return fleet.IsOurs(r, hubID) }

// publishHeld publishes the condition as roll-up does.
func (f *manyMembers) publishHeld(redis *flotillav1.Redis) {
	f.t.Helper()
	f.get(f.hub, redis)
	apimeta.SetStatusCondition(&redis.Status.Conditions, metav1.Condition{
		Type: flotillav1.ConditionRemovalHeld, Status: metav1.ConditionTrue, Reason: flotillav1.ReasonBudgetExceeded, ObservedGeneration: redis.Generation,
	})
	if err := f.hub.Status().Update(context.Background(), redis); err != nil {
		f.t.Fatal(err)
	}
}

func (f *manyMembers) wantHeld(redis *flotillav1.Redis, names ...string) {
	f.t.Helper()
	held := func(name string) bool {
		return f.r.Table.Get(f.r.key(redis), name).Reason == flotillav1.ReasonRemovalHeld
	}
	for _, name := range f.names {
		if want := slices.Contains(names, name); held(name) != want {
			f.t.Errorf("the removal in %s is held: %v, want %v", name, held(name), want)
		}
	}
	if left := f.with(redis, ours); !slices.Equal(left, names) {
		f.t.Errorf("copies are left in %v, want %v", left, names)
	}
}

func confirm(generation string) func(*flotillav1.Redis) {
	return func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationConfirmRemoval: generation}
	}
}

func TestRemovals_a_deletion_beyond_the_budget_waits_for_a_person(t *testing.T) {
	f := newManyMembers(t, 5)
	f.r.Options.Removals = fleet.NewRemovals(2, f.clock)
	redis := f.placed()
	f.delete(copyOf(redis))
	f.run(redis)
	f.wantHeld(redis, "m-3", "m-4", "m-5")

	// Neither time, nor a restart, nor a confirmation of something else changes that.
	f.publishHeld(redis)
	f.clock.Step(time.Hour)
	f.restart()
	f.r.Options.Removals = fleet.NewRemovals(2, f.clock)
	f.run(redis)
	f.wantHeld(redis, "m-3", "m-4", "m-5")
	for _, generation := range []string{"1", "3", "yes"} {
		update(f.fixture, f.hub, redis, confirm(generation))
		f.run(redis)
		f.wantHeld(redis, "m-3", "m-4", "m-5")
		if f.get(f.hub, redis); redis.Annotations[flotillav1.AnnotationConfirmRemoval] != "" {
			t.Errorf("a confirmation of %q stays for later", generation)
		}
	}

	update(f.fixture, f.hub, redis, confirm("2"))
	f.run(redis)
	if f.get(f.hub, copyOf(redis)) || len(f.with(redis, ours)) != 0 {
		t.Error("the confirmed deletion did not go through")
	}
}

func TestRemovals_another_change_confirms_nothing(t *testing.T) {
	f := newManyMembers(t, 5)
	f.r.Options.Removals = fleet.NewRemovals(2, f.clock)
	redis := f.placed()
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement = &flotillav1.Placement{Clusters: []string{"m-5"}} })
	f.run(redis)
	for i, want := range []string{"published", "not published"} {
		if i == 0 {
			f.publishHeld(redis)
		}
		f.clock.Step(time.Hour)
		update(f.fixture, f.hub, redis, setImage("redis:8.0."+want[:1]))
		f.run(redis)
		if left := f.with(redis, ours); !slices.Equal(left, []string{"m-3", "m-4", "m-5"}) {
			t.Errorf("held and %s: an image bump left copies in %v", want, left)
		}
	}
}

func TestRemovals_what_is_held_stays_so_before_it_is_published(t *testing.T) {
	f := newManyMembers(t, 3)
	f.r.Options.Removals = fleet.NewRemovals(2, f.clock)
	redis := f.placed()
	f.delete(copyOf(redis))
	f.run(redis)
	f.clock.Step(time.Hour)
	f.run(redis)
	f.wantHeld(redis, "m-3")
}

func TestRemovals_a_confirmation_works_once(t *testing.T) {
	f := newManyMembers(t, 4)
	f.r.Options.Removals = fleet.NewRemovals(1, f.clock)
	redis := f.placed()
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) {
		r.Spec.Placement = &flotillav1.Placement{Clusters: []string{"m-4"}}
	})
	f.run(redis)
	if left := f.with(redis, ours); !slices.Equal(left, []string{"m-2", "m-3", "m-4"}) {
		t.Errorf("copies are left in %v", left)
	}
	update(f.fixture, f.hub, redis, confirm("2"))
	f.run(redis)
	if left := f.with(redis, ours); !slices.Equal(left, []string{"m-4"}) {
		t.Errorf("copies are left in %v", left)
	}
	f.get(f.hub, redis)
	if redis.Annotations[flotillav1.AnnotationConfirmRemoval] != "" || redis.Generation != 2 {
		t.Errorf("generation %d, annotations %v", redis.Generation, redis.Annotations)
	}
	f.wantNothing(redis)
}

func TestRemovals_undoing_the_change_ends_the_wait(t *testing.T) {
	f := newManyMembers(t, 3)
	f.r.Options.Removals = fleet.NewRemovals(0, f.clock)
	redis := f.placed()
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.ClusterSelector.MatchLabels["region"] = "ue" })
	f.run(redis)
	f.wantHeld(redis, f.names...)
	f.publishHeld(redis)
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.ClusterSelector = selectEU() })
	f.run(redis)
	if left := f.with(redis, ours); !slices.Equal(left, f.names) || f.r.Table.Get(f.r.key(redis), "m-1").Reason != "" {
		t.Errorf("copies are left in %v", left)
	}
}

func TestRemovals_what_deletes_nothing_costs_nothing(t *testing.T) {
	f := newManyMembers(t, 3)
	f.r.Options.Removals = fleet.NewRemovals(0, f.clock)
	redis := f.placed(func(r *flotillav1.Redis) { r.Spec.Placement.DeletionPolicy = flotillav1.DeletionPolicyOrphan })
	f.delete(copyOf(redis))
	f.run(redis)
	orphaned := f.with(redis, func(r *flotillav1.Redis) bool { return !fleet.IsOurs(r, hubID) })
	if f.get(f.hub, copyOf(redis)) || !slices.Equal(orphaned, f.names) {
		t.Errorf("orphaned in %v", orphaned)
	}
}

func TestRemovals_a_restart_does_not_begin_the_budget_anew(t *testing.T) {
	f := newManyMembers(t, 2)
	restart := func() {
		f.restart()
		f.r.Options.Removals = fleet.NewRemovals(2, f.clock)
	}
	restart()
	for _, name := range f.names {
		published := &flotillav1.MemberCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: name}},
		}
		f.create(f.hub, published)
		t.Cleanup(func() { _ = hubServer.Client.Delete(context.Background(), published) })
	}
	first, second := f.placed(), f.placed()
	f.delete(copyOf(first))
	f.run(first)
	if f.get(f.hub, copyOf(first)) {
		t.Fatal("a removal within the budget did not go through")
	}
	restart()
	f.delete(copyOf(second))
	f.run(second)
	f.wantHeld(second, "m-1", "m-2")

	// The window has passed, and a third object is not held.
	third := f.placed()
	f.clock.Step(fleet.RemovalWindow)
	restart()
	f.delete(copyOf(third))
	f.run(third)
	if f.get(f.hub, copyOf(third)) {
		t.Error("the budget is not there again after the window")
	}
}
