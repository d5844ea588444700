// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// lose deletes a copy like a user of the member.
func (f *fixture) lose(redis *flotillav1.Redis) {
	f.t.Helper()
	if err := f.member.Delete(context.Background(), copyOf(redis)); err != nil {
		f.t.Fatal(err)
	}
}

// restart replaces the reconciler by a new one.
func (f *fixture) restart() {
	f.r = &Reconciler{
		Kind: f.r.Kind, Hub: f.r.Hub, HubReader: f.r.HubReader, Members: f.r.Members, Table: fleet.NewTable(), Events: f.r.Events,
		Clock: f.r.Clock, Options: f.r.Options,
	}
}

// rollUp writes the entry of eu-1 as roll-up would.
func (f *fixture) rollUp(redis *flotillav1.Redis, observedGeneration int64) {
	f.t.Helper()
	f.get(f.hub, redis)
	redis.Status.Clusters = []flotillav1.RedisClusterStatus{{ClusterStatus: flotillav1.ClusterStatus{
		Name: eu1, Ready: metav1.ConditionTrue, ObservedGeneration: observedGeneration,
	}}}
	if err := f.hub.Status().Update(context.Background(), redis); err != nil {
		f.t.Fatal(err)
	}
}

// wantRecreated expects the record of copies that were created again, and that the copy in eu-1 exists.
func (f *fixture) wantRecreated(redis *flotillav1.Redis, want ...flotillav1.Recreation) {
	f.t.Helper()
	f.get(f.hub, redis)
	if !sameRecreations(want, redis.Status.Recreated) {
		f.t.Errorf("recreated (-want +got):\n%s", cmp.Diff(want, redis.Status.Recreated))
	}
	if !f.get(f.member, copyOf(redis)) {
		f.t.Error("there is no copy")
	}
	f.wantNoWrites(redis)
}

const recreatedEvent = "Warning CopyRecreated eu-1: The copy disappeared and is created again, without its earlier data unless its volumes were kept; " +
	"restore what is missing, then name the clusters in annotation flotilla.dev/confirm-recreated"

func TestReconcile_records_that_a_copy_is_made_again_before_it_is(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	clock := clocktesting.NewFakeClock(noon)
	f.r.Clock = clock
	redis := f.newRedis()
	f.settle(redis)
	f.wantRecreated(redis)

	f.lose(redis)
	f.pass(redis, eu1)
	if f.get(f.member, copyOf(redis)) {
		t.Fatal("the copy was made again before the record says so")
	}
	f.settle(redis)
	f.wantEvents(recreatedEvent)
	f.wantRecreated(redis, flotillav1.Recreation{Name: eu1, Time: metav1.NewTime(noon)})

	// Again in the same second, or after a clock that was ahead: nothing waits for a record that exists.
	for _, now := range []time.Time{noon, noon.Add(-time.Minute)} {
		clock.SetTime(now)
		f.lose(redis)
		f.settle(redis)
		f.wantEvents("Warning CopyRecreated eu-1: The copy disappeared and was created again")
		f.wantRecreated(redis, flotillav1.Recreation{Name: eu1, Time: metav1.NewTime(noon)})
	}

	clock.SetTime(noon.Add(time.Hour))
	f.lose(redis)
	f.settle(redis)
	f.wantEvents(recreatedEvent)
	f.wantRecreated(redis, flotillav1.Recreation{Name: eu1, Time: metav1.NewTime(noon.Add(time.Hour))})

	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationConfirmRecreated: "us-1"}
	})
	f.settle(redis)
	f.wantRecreated(redis, flotillav1.Recreation{Name: eu1, Time: metav1.NewTime(noon.Add(time.Hour))})
	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationConfirmRecreated: "us-1 eu-1"}
	})
	f.settle(redis)
	f.wantRecreated(redis)
	if len(redis.Annotations) > 0 {
		t.Errorf("annotations that have done their work: %v", redis.Annotations)
	}
	f.wantEvents()
}

func TestReconcile_a_restart_does_not_forget_a_copy_that_is_missed(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	f.r.Clock = clocktesting.NewFakeClock(noon)
	redis := f.newRedis()
	f.settle(redis)
	f.rollUp(redis, 1)

	// The copy disappears while no manager runs, and the next manager ends after each of its passes.
	f.lose(redis)
	for range 3 {
		f.restart()
		f.pass(redis, eu1)
		f.pass(redis, "")
	}
	f.wantEvents(recreatedEvent)
	f.wantRecreated(redis, flotillav1.Recreation{Name: eu1, Time: metav1.NewTime(noon)})

	// Roll-up omits ready clusters first.
	others := f.newRedis()
	f.settle(others)
	f.rollUp(others, 1)
	others.Status.Clusters[0].Name, others.Status.ClustersOmitted = "another", 1
	if err := f.hub.Status().Update(context.Background(), others); err != nil {
		t.Fatal(err)
	}
	f.lose(others)
	f.restart()
	f.settle(others)
	f.wantRecreated(others, flotillav1.Recreation{Name: eu1, Time: metav1.NewTime(noon)})
}

// TestReconcile_copies_that_are_not_missed covers the creation of copies where no earlier copy was lost.
func TestReconcile_copies_that_are_not_missed(t *testing.T) {
	choose := func(f *fixture, redis *flotillav1.Redis, name string) {
		update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Clusters = []string{name} })
		f.settle(redis)
	}
	annotate := func(f *fixture, redis *flotillav1.Redis, key string) {
		update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Annotations = map[string]string{key: eu1} })
		f.settle(redis)
	}
	tests := map[string]func(f *fixture, redis *flotillav1.Redis){
		"the choice was changed twice": func(f *fixture, redis *flotillav1.Redis) {
			choose(f, redis, "us-1")
			choose(f, redis, eu1)
		},
		"the choice was changed back while the copy was going": func(f *fixture, redis *flotillav1.Redis) {
			update(f, f.member, copyOf(redis), func(r *flotillav1.Redis) { r.Finalizers = []string{"example.com/slow"} })
			choose(f, redis, "us-1")
			choose(f, redis, eu1)
			update(f, f.member, copyOf(redis), func(r *flotillav1.Redis) { r.Finalizers = nil })
		},
		"the copy was given up and removed": func(f *fixture, redis *flotillav1.Redis) {
			f.lose(redis)
			annotate(f, redis, flotillav1.AnnotationRelease)
		},
		"the member is another cluster": func(f *fixture, redis *flotillav1.Redis) {
			f.lose(redis)
			f.directory.Change(eu1, func(s *clusters.Snapshot) { s.UID = "another" })
		},
		"the member became another cluster while the manager started": func(f *fixture, redis *flotillav1.Redis) {
			f.lose(redis)
			f.restart()
			f.directory.Change(eu1, func(s *clusters.Snapshot) { s.UID, s.Replaced = "another", true })
		},
		"the member was offboarded": func(f *fixture, redis *flotillav1.Redis) {
			registered, _ := f.directory.Snapshot(eu1)
			f.directory.Remove(eu1)
			f.settle(redis)
			f.lose(redis)
			f.directory.Set(registered)
		},
		"a copy was never made": func(f *fixture, redis *flotillav1.Redis) {
			f.lose(redis)
			f.rollUp(redis, 0)
			f.restart()
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fleet.Redis)
			redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Placement = &flotillav1.Placement{Clusters: []string{eu1}} })
			f.settle(redis)
			f.rollUp(redis, 1)
			change(f, redis)
			f.settle(redis)
			f.wantRecreated(redis)
		})
	}
}

func TestReconcile_drops_the_record_with_the_copy(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Placement = &flotillav1.Placement{Clusters: []string{eu1}} })
	f.settle(redis)
	f.lose(redis)
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Clusters = []string{"us-1"} })
	f.settle(redis)
	if f.get(f.hub, redis); len(redis.Status.PlacedIn)+len(redis.Status.Recreated) > 0 {
		t.Errorf("placedIn %v, recreated %v", redis.Status.PlacedIn, redis.Status.Recreated)
	}
}

func TestReconcile_records_copies_of_many_members_together(t *testing.T) {
	f := newManyMembers(t, 3)
	redis := f.newRedis()
	f.run(redis)
	for _, name := range f.names {
		if err := f.engaged(name).GetClient().Delete(context.Background(), copyOf(redis)); err != nil {
			t.Fatal(err)
		}
	}
	f.run(redis)
	f.wantEvents("Warning CopyRecreated m-1, m-2, m-3: ")
	if f.get(f.hub, redis); len(redis.Status.Recreated) != 3 {
		t.Errorf("recreated %v", redis.Status.Recreated)
	}
}

func TestReconcile_NodePool_that_is_made_again_loses_nothing(t *testing.T) {
	f := newFixture(t, fleet.NodePool)
	pool := &flotillav1.NodePool{}
	pool.Name = "recreated"
	pool.Spec.Placement = &flotillav1.Placement{Clusters: []string{eu1}}
	f.create(f.hub, pool)
	f.settle(pool)
	if err := f.member.Delete(context.Background(), &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}}); err != nil {
		t.Fatal(err)
	}
	f.settle(pool)
	f.wantEvents("Warning CopyRecreated eu-1: The copy disappeared and was created again")
	if f.get(f.hub, pool); len(pool.Status.Recreated) > 0 {
		t.Errorf("recreated %v", pool.Status.Recreated)
	}
	if err := f.hub.Delete(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	f.settle(pool)
}

func TestReconcile_waits_for_the_end_of_a_namespace(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	// Nothing in this test acknowledges it.
	if err := f.member.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: redis.Namespace}}); err != nil {
		t.Fatal(err)
	}
	f.lose(redis)
	f.settle(redis)
	if f.get(f.hub, redis); len(redis.Status.Recreated) != 1 {
		t.Errorf("recreated %v", redis.Status.Recreated)
	}
	f.wantOutcome(redis, "")
	if delay := f.pass(redis, eu1).RequeueAfter; delay != terminatingDelay {
		t.Errorf("it is tried again after %v", delay)
	}
}
