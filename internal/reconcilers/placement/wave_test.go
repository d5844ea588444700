// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

const (
	good    = "registry.example.com/redis:1"
	bad     = "registry.example.com/redis:bad"
	correct = "registry.example.com/redis:2"
)

func (f *manyMembers) wantNothing(redis *flotillav1.Redis) {
	f.t.Helper()
	before := f.writes.Load()
	f.run(redis)
	if written := f.writes.Load() - before; written != 0 {
		f.t.Errorf("passes without a change made %d writes", written)
	}
}

func TestWaves_a_bad_image_reaches_one_cluster(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.placed(setImage(good))
	update(f.fixture, f.hub, redis, setImage(bad))
	f.run(redis)
	f.wantImage(redis, bad, "m-1")

	// Nothing is written to the others.
	for _, name := range f.names[1:] {
		placed := f.copyIn(redis, name)
		if placed.Annotations[flotillav1.AnnotationHubGeneration] != "1" || placed.Generation != 1 {
			t.Errorf("%s: generation %d, annotations %v", name, placed.Generation, placed.Annotations)
		}
	}
	f.become(redis, metav1.ConditionFalse, "m-1")
	f.clock.Step(9 * time.Minute)
	f.wantNothing(redis)
	if result := f.pass(redis, ""); result.RequeueAfter != time.Minute {
		t.Errorf("the hub pass looks again in %s", result.RequeueAfter)
	}
	f.clock.Step(time.Hour)
	f.wantNothing(redis)
	f.wantImage(redis, bad, "m-1")
	f.restart()
	f.wantNothing(redis)
	f.wantImage(redis, bad, "m-1")

	// The previous spec is applied at once, although m-1 is not ready.
	update(f.fixture, f.hub, redis, setImage(good))
	f.run(redis)
	f.wantImage(redis, good, f.names...)
	f.wantNothing(redis)

	// The bad spec is no longer the previous one: applying it again is a change like any other.
	update(f.fixture, f.hub, redis, setImage(bad))
	f.run(redis)
	if took := f.with(redis, image(bad)); len(took) != 1 {
		t.Errorf("%v took the bad image again", took)
	}
}

func TestWaves_a_correction_goes_first_to_who_took_what_was_wrong(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good))
	f.become(redis, metav1.ConditionFalse, "m-1")

	update(f.fixture, f.hub, redis, setImage(bad))
	f.run(redis)
	f.wantImage(redis, bad, "m-2")
	f.become(redis, metav1.ConditionFalse, "m-2")
	f.clock.Step(time.Hour)
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	f.wantImage(redis, correct, "m-2")
}

func TestWaves_a_good_change_reaches_all(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.placed(setImage(good), func(r *flotillav1.Redis) { r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "2"} })
	update(f.fixture, f.hub, redis, setImage(correct))
	for _, took := range [][]string{{"m-1"}, {"m-1", "m-2", "m-3"}, f.names} {
		f.run(redis)
		f.wantImage(redis, correct, took...)
		f.restart()
		f.wantNothing(redis)
		f.become(redis, metav1.ConditionTrue, took...)
	}
	f.run(redis)
	f.wantNothing(redis)
	if f.get(f.hub, redis); len(redis.Status.Trials) > 0 {
		t.Errorf("still on trial: %+v", redis.Status.Trials)
	}
	if f.r.Table.Held(f.r.key(redis)) {
		t.Error("somebody still waits")
	}
	previous, changed := f.copyIn(redis, "m-5"), noon.Format(metav1.RFC3339Micro)
	if previous.Annotations[flotillav1.AnnotationSpecChangedAt] != changed || previous.Annotations[flotillav1.AnnotationPreviousSpecHash] == "" {
		t.Errorf("annotations %v", previous.Annotations)
	}
	f.clock.Step(time.Hour)
	f.wantNothing(redis)
}

func TestWaves_what_does_not_wait(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good))
	update(f.fixture, f.hub, redis, setImage(bad))
	f.run(redis)
	f.wantImage(redis, bad, "m-1")

	// A member that joins, a copy that is deleted, and metadata.
	f.directory.Change("m-4", func(s *clusters.Snapshot) { s.Labels = nil })
	f.directory.Change("m-4", func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "eu"} })
	if err := (apart{f.member, "m-4"}).Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	// Drift in a cluster that has taken the change.
	placed := copyOf(redis)
	update(f.fixture, apart{f.member, "m-1"}, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(9)) })
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.DeletionPolicy = flotillav1.DeletionPolicyOrphan })
	f.run(redis)
	f.wantImage(redis, bad, "m-1", "m-4")
	if placed := f.copyIn(redis, "m-1"); *placed.Spec.Replicas != 3 {
		t.Errorf("drift was not healed: %d replicas", *placed.Spec.Replicas)
	}
	for _, name := range f.names {
		if policy := f.copyIn(redis, name).Annotations[flotillav1.AnnotationDeletionPolicy]; policy != flotillav1.DeletionPolicyOrphan {
			t.Errorf("%s: the deletion policy is %q", name, policy)
		}
	}
	f.wantNothing(redis)
}

// TestWaves_a_label_dropped_in_the_middle covers copies that have not got the current spec: this must not be mistaken for a
// change of the choice.
func TestWaves_a_label_dropped_in_the_middle(t *testing.T) {
	for name, change := range map[string]func(*flotillav1.Redis){
		"held": setImage(correct),
		"refused by the hub": func(r *flotillav1.Redis) {
			r.Spec.Placement.Overrides = []flotillav1.Override{{Clusters: []string{"m-2"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"nonsense":1}`)}}}
		},
		"refused by the member": func(r *flotillav1.Redis) {
			r.Spec.Placement.Overrides = []flotillav1.Override{{Clusters: []string{"m-2"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas":500}`)}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newManyMembers(t, 2)
			redis := f.placed(setImage(good))
			// A spec that a member refuses is sent in each pass.
			rounds := func() {
				for range 3 {
					f.round(redis)
				}
			}
			update(f.fixture, f.hub, redis, change)
			rounds()
			f.directory.Change("m-2", func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "us"} })
			rounds()
			if placed := f.copyIn(redis, "m-2"); placed == nil || placed.Spec.Image != good || !fleet.IsOurs(placed, hubID) {
				t.Errorf("the copy of a member whose label was dropped is %+v", placed)
			}
		})
	}
}

func TestWaves_members_that_are_away_or_refuse_are_passed_over(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good))
	f.directory.Change("m-1", func(s *clusters.Snapshot) { s.State = clusters.StateUnreachable })
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) {
		r.Spec.Image = correct
		r.Spec.Placement.Overrides = []flotillav1.Override{{Clusters: []string{"m-2"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas":500}`)}}}
	})
	f.run(redis)
	f.wantImage(redis, correct, "m-3")
	f.become(redis, metav1.ConditionTrue, "m-3")
	f.run(redis)
	f.wantImage(redis, correct, "m-3", "m-4")
	if outcome := f.r.Table.Get(f.r.key(redis), "m-2"); outcome.Reason != flotillav1.ReasonApplyFailed {
		t.Errorf("the outcome in m-2 is %+v", outcome)
	}
	f.become(redis, metav1.ConditionTrue, "m-4")
	f.directory.Change("m-1", func(s *clusters.Snapshot) { s.State = clusters.StateReady })
	f.run(redis)
	f.wantImage(redis, correct, "m-1", "m-3", "m-4")
}

func TestWaves_who_was_let_and_went_away_counts_until_it_is_seen(t *testing.T) {
	f := newManyMembers(t, 3)
	redis := f.placed(setImage(good))
	update(f.fixture, f.hub, redis, setImage(bad))
	f.pass(redis, "m-1")
	f.pass(redis, "")
	f.pass(redis, "")
	f.unreachable("m-1")
	f.run(redis)
	f.wantImage(redis, bad)
	f.clock.Step(time.Hour)
	f.run(redis)
	f.wantImage(redis, bad)

	// It is back, and has not taken the change: others go first.
	f.back("m-1")
	f.run(redis)
	f.clock.Step(time.Minute)
	f.run(redis)
	f.wantImage(redis, bad, "m-2")
	f.become(redis, metav1.ConditionFalse, "m-2")
	f.clock.Step(time.Hour)
	f.run(redis)
	f.wantImage(redis, bad, "m-2")
}

func TestWaves_members_that_this_process_does_not_know_are_waited_for(t *testing.T) {
	f := newManyMembers(t, 2)
	redis := f.placed(setImage(good))
	f.restart()
	f.directory.Change("m-2", func(s *clusters.Snapshot) { s.State, s.Decided = clusters.StatePending, false })
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	f.wantImage(redis, correct)
	f.directory.Change("m-2", func(s *clusters.Snapshot) { s.State, s.Decided = clusters.StateUnreachable, true })
	f.run(redis)
	f.wantImage(redis, correct, "m-1")
}

// TestWaves_few_objects_change_in_a_cluster_at_a_time changes three objects at once in two clusters that have room for one.
func TestWaves_few_objects_change_in_a_cluster_at_a_time(t *testing.T) {
	// What is on trial anywhere on the hub counts after a restart.
	f := newNamedMembers(t, "few-", 2)
	f.perCluster = 1
	f.restart()
	var redises []*flotillav1.Redis
	for range 3 {
		redises = append(redises, f.placed(setImage(good)))
	}
	for _, redis := range redises {
		update(f.fixture, f.hub, redis, setImage(correct))
	}
	changing := func() map[string]*flotillav1.Redis {
		t.Helper()
		in := map[string]*flotillav1.Redis{}
		for _, redis := range redises {
			for _, name := range f.with(redis, image(correct)) {
				if seen := fleet.CopyOf(fleet.Redis, f.copyIn(redis, name)); seen.Settled() {
					continue
				}
				if other := in[name]; other != nil {
					t.Errorf("%s and %s change in %s at once", other.Namespace, redis.Namespace, name)
				}
				in[name] = redis
			}
		}
		return in
	}
	// A slot that becomes free is for somebody whose passes have run already.
	runAll := func() {
		t.Helper()
		for _, redis := range append(redises, redises...) {
			f.run(redis)
		}
	}
	for range 3 {
		runAll()
		busy := changing()
		if len(busy) != len(f.names) {
			t.Errorf("changes are under way in %d of %d clusters", len(busy), len(f.names))
		}
		// Another process knows who is changing.
		f.restart()
		runAll()
		if after := changing(); len(after) != len(busy) {
			t.Errorf("after a restart changes are under way in %d clusters", len(after))
		}
		for name, redis := range busy {
			f.become(redis, metav1.ConditionTrue, name)
		}
	}
	runAll()
	for _, redis := range redises {
		f.wantImage(redis, correct, f.names...)
	}
}

// newCrowdedMembers returns two members with room for one change each, and an object that changes in each of them.
func newCrowdedMembers(t *testing.T, prefix string) (f *manyMembers, first, second *flotillav1.Redis) {
	t.Helper()
	f = newNamedMembers(t, prefix, 2)
	f.perCluster = 1
	f.restart()
	first, second = f.placed(setImage(good)), f.placed(setImage(good))
	for _, redis := range []*flotillav1.Redis{first, second} {
		update(f.fixture, f.hub, redis, setImage(correct))
		f.run(redis)
	}
	return f, first, second
}

func TestWaves_what_has_passed_is_recorded_with_what_begins(t *testing.T) {
	f, first, second := newCrowdedMembers(t, "crowded-")
	f.wantImage(first, correct, "crowded-1")
	f.wantImage(second, correct, "crowded-2")
	hubWrites := &atomic.Int64{}
	f.r.Hub = counting(t, hubServer.Config, hubWrites)
	f.become(first, metav1.ConditionTrue, "crowded-1")
	f.run(first)
	if hubWrites.Load() != 0 {
		t.Errorf("%d writes on the hub while the next cluster has no room, want none", hubWrites.Load())
	}
	f.become(second, metav1.ConditionTrue, "crowded-2")
	f.run(second)
	f.run(first)
	f.wantImage(first, correct, f.names...)
	f.wantImage(second, correct, f.names...)
	if hubWrites.Load() != 2 {
		t.Errorf("%d writes on the hub, want one for each object", hubWrites.Load())
	}
}

func TestWaves_what_has_passed_is_recorded_after_a_while(t *testing.T) {
	f, first, _ := newCrowdedMembers(t, "waiting-")
	f.become(first, metav1.ConditionTrue, "waiting-1")
	f.run(first)
	f.clock.Step(trialsPace)
	f.run(first)
	if f.get(f.hub, first); len(first.Status.Trials) != 0 {
		t.Errorf("on trial are %v, want none", first.Status.Trials)
	}
}

func TestCopyChanged(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	before := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache", Annotations: map[string]string{
		flotillav1.AnnotationHub: hubID, flotillav1.AnnotationPlacedFrom: "shop/cache",
	}}}
	numbers, ready := before.DeepCopy(), before.DeepCopy()
	numbers.Status.ReadyReplicas = 3
	apimeta.SetStatusCondition(&ready.Status.Conditions, metav1.Condition{Type: flotillav1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Test"})
	if f.r.copyChanged(before, ready) || len(f.r.requestsOfCopy(context.Background(), eu1, nil, ready)) != 1 {
		t.Error("readiness wakes placement although nobody waits for it")
	}
	f.r.Table.Set(f.r.key(before), "m-2", fleet.Outcome{Held: true})
	if !f.r.copyChanged(before, ready) || len(f.r.requestsOfCopy(context.Background(), eu1, nil, ready)) != 2 {
		t.Error("readiness does not wake the hub pass although somebody waits for it")
	}
	if f.r.copyChanged(before, numbers) {
		t.Error("mere numbers wake placement")
	}
}
