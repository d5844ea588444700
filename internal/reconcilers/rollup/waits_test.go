// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func (f *fixture) wantMessage(object fleet.Object, conditionType, part string) {
	f.t.Helper()
	condition := apimeta.FindStatusCondition(*object.GetConditions(), conditionType)
	if condition == nil || !strings.Contains(condition.Message, part) {
		f.t.Errorf("want %q in %+v", part, condition)
	}
}

func TestReconcile_shows_removals_that_wait_for_a_person(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	status(f, f.hub, redis, func(r *flotillav1.Redis) { r.Status.PlacedIn = []string{eu1} })
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)
	f.wantEvents("Normal ClusterReady eu-1: ")

	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Clusters = []string{"us-1"} })
	key := fleet.ObjectKey{Kind: "Redis", Object: client.ObjectKeyFromObject(redis)}
	f.r.Table.Set(key, eu1, fleet.Outcome{Generation: 2, Reason: flotillav1.ReasonRemovalHeld})
	f.directory.Set(snapshotOf("us-1", clusters.StateReady, true))
	for range 2 {
		f.settle(redis)
		f.wantConditions(redis, map[string]string{"RemovalHeld": "True BudgetExceeded"})
		f.wantMessage(redis, "RemovalHeld", "Removal held until annotation flotilla.dev/confirm-removal is 2: eu-1")
		f.wantMessage(redis, "Placed", "removal held until annotation flotilla.dev/confirm-removal is 2: eu-1")
		if !fleet.RemovalHeld(redis) || redis.Status.Clusters[0].Reason != flotillav1.ReasonRemovalHeld {
			t.Errorf("the entries are %+v", redis.Status.Clusters)
		}
		// A process that has not observed the copy yet reports the same.
		f.restart(redisKind)
	}
	f.wantEvents("Warning RemovalHeld Removal held until ")

	// Neither an unreachable cluster nor a change of something else ends it; undoing the change does.
	f.directory.Set(snapshotOf(eu1, clusters.StateUnreachable, true))
	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.0" })
	f.settle(redis)
	f.wantMessage(redis, "RemovalHeld", "Removal held until annotation flotilla.dev/confirm-removal is 3: eu-1")
	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Clusters = []string{"us-1", eu1} })
	f.settle(redis)
	if apimeta.FindStatusCondition(redis.Status.Conditions, flotillav1.ConditionRemovalHeld) != nil {
		t.Error("the removal was undone and is still shown as held")
	}
}

func TestReconcile_shows_copies_that_were_made_again(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	made := metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	status(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Status.PlacedIn, r.Status.Recreated = []string{eu1}, []flotillav1.Recreation{{Name: eu1, Time: made}}
	})
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"CopyRecreated": "True CopyRecreated"})
	f.wantMessage(redis, "CopyRecreated", ": eu-1 (2026-11-21T12:00:00Z); ")
	f.wantMessage(redis, "Ready", "Created again, see condition CopyRecreated: eu-1; ")
	if len(redis.Status.Recreated) != 1 {
		t.Errorf("roll-up has changed the record: %v", redis.Status.Recreated)
	}
	status(f, f.hub, redis, func(r *flotillav1.Redis) { r.Status.Recreated = nil })
	f.settle(redis)
	if apimeta.FindStatusCondition(redis.Status.Conditions, flotillav1.ConditionCopyRecreated) != nil {
		t.Error("it has been acknowledged and is still shown")
	}
}

// A member may have been renamed, and its override would be lost without a word.
func TestReconcile_shows_overrides_of_clusters_that_are_not_chosen(t *testing.T) {
	f := newFixture(t, redisKind)
	patch := &apiextensionsv1.JSON{Raw: []byte(`{"replicas": 5}`)}
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}, Overrides: []flotillav1.Override{
		{Clusters: []string{"eu-0", eu1}, Patch: patch}, {Clusters: []string{"eu-0"}, Patch: patch},
	}})
	f.settle(redis)
	f.wantMessage(redis, "Placed", "; overrides name clusters that are not chosen: eu-0")
}

func TestReconcile_shows_copies_that_are_kept_though_their_cluster_is_not_chosen(t *testing.T) {
	f := newFixture(t, redisKind)
	eu := &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{"us-1"}, ClusterSelector: eu})
	status(f, f.hub, redis, func(r *flotillav1.Redis) { r.Status.PlacedIn = []string{eu1} })
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)
	if entry := redis.Status.Clusters[0]; entry.Name != eu1 || entry.Ready != metav1.ConditionTrue || entry.Reason != flotillav1.ReasonLeaving {
		t.Errorf("the entry is %+v", entry)
	}
	f.wantMessage(redis, "Placed", "; leaving, copy kept: eu-1")

	alone := f.newRedis(&flotillav1.Placement{ClusterSelector: eu})
	status(f, f.hub, alone, func(r *flotillav1.Redis) { r.Status.PlacedIn = []string{eu1} })
	placed = &flotillav1.Redis{}
	f.place(alone, placed)
	status(f, f.member, placed, observed)
	f.settle(alone)
	f.wantConditions(alone, map[string]string{"Placed": "False NoClusterSelected", "Ready": "True AllReady"})
	f.wantMessage(alone, "Placed", "; leaving, copy kept: eu-1")
	kept, sums := alone.Status.Clusters[0], alone.Status
	if kept.Replicas == 0 || kept.ReadyReplicas == 0 || kept.UpdatedReplicas != 0 {
		t.Errorf("the entry has not the numbers of its copy: %+v", kept)
	}
	if sums.Replicas != 0 || sums.ReadyReplicas != 0 || sums.UpdatedReplicas != 0 || sums.DesiredReplicas != 0 {
		t.Errorf("what is only kept is in the sums: %d replicas, %d ready, %d updated, %d desired", sums.Replicas, sums.ReadyReplicas, sums.UpdatedReplicas, sums.DesiredReplicas)
	}
}

// snapshot is a member that returns an earlier state of one copy.
type snapshot struct {
	client.Client
	copy *flotillav1.Redis
}

func (s snapshot) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.copy.DeepCopyInto(object.(*flotillav1.Redis))
	return nil
}

func TestReconcile_shows_a_change_that_has_stopped(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1, "eu-2"}})
	f.directory.Set(snapshotOf("eu-2", clusters.StateReady, true))
	status(f, f.hub, redis, func(r *flotillav1.Redis) { r.Status.PlacedIn = []string{eu1, "eu-2"} })
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.directory.Engage("eu-2", uncached{client: snapshot{f.member, placed.DeepCopy()}})

	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(4)) })
	f.place(redis, placed)
	specs, err := fleet.NewSpecs(fleet.Redis, redis)
	if err != nil {
		t.Fatal(err)
	}
	template, err := specs.Template()
	if err != nil {
		t.Fatal(err)
	}
	spec(f, f.member, placed, func(r *flotillav1.Redis) {
		r.Spec.Replicas = new(int32(4))
		r.Annotations[flotillav1.AnnotationRollout] = template
		r.Annotations[flotillav1.AnnotationSpecChangedAt] = f.clock.Now().UTC().Format(metav1.RFC3339Micro)
	})
	want, err := specs.For(eu1, nil)
	if err != nil {
		t.Fatal(err)
	}
	status(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Status.Trials = fleet.Trials{eu1: {Hash: want.Hash, Since: f.clock.Now()}}.Record()
	})
	status(f, f.member, placed, func(r *flotillav1.Redis) {
		r.Status.ObservedGeneration = r.Generation
		r.Status.Conditions = ready(metav1.ConditionFalse, flotillav1.ReasonReplicasNotReady, "0 of 4 Pods are ready")
	})
	f.pass(redis)
	f.clock.Step(minTransit)
	f.pass(redis)
	f.read(f.hub, redis)
	f.wantConditions(redis, map[string]string{"Progressing": "True RollingOut"})
	progress := func(moment string, want *flotillav1.RolloutStatus) {
		t.Helper()
		if diff := cmp.Diff(want, redis.Status.Rollout); diff != "" {
			t.Errorf("%s (-want +got):\n%s", moment, diff)
		}
	}
	progress("rolling out", &flotillav1.RolloutStatus{Changing: 1, Waiting: 1})
	if _, again := f.pass(redis); again <= 0 || again > 10*time.Minute {
		t.Errorf("the pass looks again in %s", again)
	}
	f.clock.Step(10 * time.Minute)
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Progressing": "False RolloutHalted", "Ready": "False ClustersNotReady"})
	f.wantMessage(redis, "Progressing", "Not ready in time: eu-1 (ReplicasNotReady); not changed: eu-2")
	stalled := func(moment string, want testenv.Health) {
		t.Helper()
		if got, err := testenv.HealthOf(redis); err != nil || got != want {
			t.Errorf("%s: health %s, %v; want %s", moment, got, err, want)
		}
	}
	f.wantConditions(redis, map[string]string{"Stalled": "True RolloutHalted"})
	f.wantMessage(redis, "Ready", "Rollout halted: not ready in time: eu-1 (ReplicasNotReady); not changed: eu-2; not ready: eu-1 (ReplicasNotReady)")
	stalled("halted", testenv.Failed)
	progress("halted", &flotillav1.RolloutStatus{Failed: 1, Waiting: 1})

	// It is taken back: eu-1 is to get what it had, and eu-2 has that already.
	halted := redis.Status.DeepCopy()
	status(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Status.Change = &flotillav1.Change{Rollout: template, Since: metav1.NewMicroTime(f.clock.Now().Add(-time.Hour)), Revert: &flotillav1.Revert{
			Since: metav1.NewMicroTime(f.clock.Now()), Revision: "before", SpecHashes: []string{want.Hash}, Message: "Not ready in time: eu-1 (ReplicasNotReady)",
		}}
	})
	f.clock.Step(2 * time.Second)
	f.settle(redis)
	f.wantConditions(redis, map[string]string{
		"Progressing": "False RolloutReverted", "Ready": "False ClustersNotReady", "Stalled": "True RolloutReverted", "Placed": "False RolloutReverted",
	})
	f.wantMessage(redis, "Ready", "Rollout reverted: not ready in time: eu-1 (ReplicasNotReady); not ready: ")
	stalled("taken back", testenv.Failed)
	progress("taken back", &flotillav1.RolloutStatus{Failed: 1, Reverted: 1})
	if entry := redis.Status.Clusters[1]; entry.Reason != flotillav1.ReasonReverted || entry.ObservedGeneration >= redis.Generation {
		t.Errorf("eu-2 has what it had: %+v", entry.ClusterStatus)
	}
	status(f, f.hub, redis, func(r *flotillav1.Redis) { r.Status.Change = nil })
	f.clock.Step(2 * time.Second)
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Progressing": "False RolloutHalted", "Stalled": "True RolloutHalted"})
	progress("tried again", halted.Rollout)

	// After a restart it stays until every cluster is decided.
	f.restart(redisKind)
	f.directory.Set(snapshotOf("eu-2", clusters.StateConnecting, false))
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Progressing": "False RolloutHalted", "Stalled": "True RolloutHalted"})
	f.wantMessage(redis, "Ready", "Rollout halted: ")
	progress("after a restart", &flotillav1.RolloutStatus{Failed: 1, Waiting: 1})
	f.directory.Set(snapshotOf("eu-2", clusters.StateReady, true))
	status(f, f.member, placed, func(r *flotillav1.Redis) { r.Status.Conditions = ready(metav1.ConditionTrue, "AllReplicasReady", "") })
	f.clock.Step(2 * time.Second)
	f.pass(redis)
	f.read(f.hub, redis)
	if found := apimeta.FindStatusCondition(redis.Status.Conditions, flotillav1.ConditionStalled); found != nil {
		t.Errorf("the rollout goes on: %+v", found)
	}
	stalled("going on", testenv.InProgress)
	progress("going on", &flotillav1.RolloutStatus{Done: 1, Changing: 1})
	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Clusters = []string{eu1} })
	f.clock.Step(10 * time.Second)
	f.settle(redis)
	progress("over", nil)
}

func TestReconcile_says_that_an_override_for_no_cluster_is_invalid(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}, Overrides: []flotillav1.Override{{Clusters: []string{"nowhere"}, LeaveToMember: []string{"replicsa"}}}})
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Stalled": "True OverrideInvalid"})
	f.wantMessage(redis, "Stalled", `Override 1: leaveToMember: unknown field "replicsa": did you mean "replicas"?`)
	f.wantMessage(redis, "Ready", `did you mean "replicas"?`)
	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Overrides = nil })
	f.settle(redis)
	if found := apimeta.FindStatusCondition(redis.Status.Conditions, flotillav1.ConditionStalled); found != nil {
		t.Errorf("the override is gone: %+v", found)
	}
}
