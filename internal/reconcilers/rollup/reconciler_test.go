// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// newRedis creates a Redis that is placed in these clusters, and its namespace on both sides.
func (f *fixture) newRedis(placement *flotillav1.Placement) *flotillav1.Redis {
	f.t.Helper()
	redis := &flotillav1.Redis{}
	redis.Namespace, redis.Name = hubServer.Namespace(f.t), "cache"
	redis.Spec.Replicas = new(int32(3))
	redis.Spec.Placement = placement
	f.create(f.hub, redis)
	f.create(f.member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: redis.Namespace}})
	return redis
}

// observed makes a copy report that it is ready.
func observed(r *flotillav1.Redis) {
	r.Status.ObservedGeneration = r.Generation
	r.Status.Replicas, r.Status.ReadyReplicas, r.Status.UpdatedReplicas = 3, 3, 3
	r.Status.Conditions = ready(metav1.ConditionTrue, flotillav1.ReasonAllReplicasReady, "3 of 3 Pods are ready")
}

func TestReconcile_adds_up(t *testing.T) {
	f := newFixture(t, redisKind)
	f.directory.Set(snapshotOf("us-1", clusters.StateUnreachable, true))
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1, "us-1", "nowhere"}})
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Ready": "False ClustersNotReady", "Placed": "False PlacementPending", "Progressing": "True PlacementPending"})
	f.wantEvents("Warning NotRegistered nowhere: ", "Warning ClusterUnreachable us-1: ")

	placed := &flotillav1.Redis{Spec: flotillav1.RedisSpec{Replicas: new(int32(3))}}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)

	if diff := cmp.Diff(&flotillav1.ClusterCounts{Desired: 3, Applied: 1, Ready: 1, Unknown: 2}, redis.Status.ClusterCounts); diff != "" {
		t.Errorf("clusterCounts (-want +got):\n%s", diff)
	}
	got := []int32{redis.Status.Replicas, redis.Status.ReadyReplicas, redis.Status.UpdatedReplicas, redis.Status.DesiredReplicas}
	if diff := cmp.Diff([]int32{3, 3, 3, 9}, got); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	var entries []string
	for _, entry := range redis.Status.Clusters {
		entries = append(entries, entry.Name+" "+string(entry.Ready)+" "+entry.Reason)
	}
	if diff := cmp.Diff([]string{"eu-1 True ", "nowhere Unknown NotRegistered", "us-1 Unknown ClusterUnreachable"}, entries); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	f.wantConditions(redis, map[string]string{
		"Ready": "True AllReady", "FullyReady": "False ClustersUnknown", "Placed": "True AllPlaced",
		"ClustersReachable": "False ClustersUnknown", "Progressing": "False Settled",
	})
	f.wantEvents("Normal ClusterReady eu-1: Ready")
}

func TestReconcile_an_outage_keeps_the_numbers(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)
	wasReadySince := redis.Status.Clusters[0].Since

	f.directory.Set(snapshotOf(eu1, clusters.StateUnreachable, true))
	f.settle(redis)
	entry := redis.Status.Clusters[0]
	if entry.Ready != metav1.ConditionUnknown || entry.ReadyReplicas != 3 || entry.ObservedGeneration != 1 || entry.Since.Equal(wasReadySince) {
		t.Errorf("the entry is %+v", entry)
	}
	if redis.Status.Replicas != 0 || redis.Status.DesiredReplicas != 3 {
		t.Errorf("%d replicas of %d: totals are about what can be seen", redis.Status.Replicas, redis.Status.DesiredReplicas)
	}
	f.wantConditions(redis, map[string]string{"Ready": "Unknown ClustersUnknown", "ClustersReachable": "False ClustersUnknown"})
	since := entry.Since
	f.clock.Step(time.Hour)
	f.settle(redis)
	if !redis.Status.Clusters[0].Since.Equal(since) {
		t.Error("since moved although nothing changed")
	}
	f.wantEvents("Normal ClusterReady eu-1: ", "Warning ClusterUnreachable eu-1: ")
}

func TestReconcile_a_kind_that_is_off_is_not_known(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{All: true})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)

	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Off = map[string]string{"Redis": flotillav1.ReasonForbidden} })
	f.settle(redis)
	if len(redis.Status.Clusters) != 1 {
		t.Fatalf("the clusters are %+v: a kind that is off is no reason to leave", redis.Status.Clusters)
	}
	entry := redis.Status.Clusters[0]
	if entry.Ready != metav1.ConditionUnknown || entry.Reason != flotillav1.ReasonClusterNotReady || !strings.HasPrefix(entry.Message, "The kind is off in the cluster") || entry.ReadyReplicas != 3 {
		t.Errorf("the entry is %+v", entry)
	}
	f.directory.Set(snapshotOf(eu1, clusters.StateReady, true))
	f.settle(redis)
	if entry := redis.Status.Clusters[0]; entry.Ready != metav1.ConditionTrue {
		t.Errorf("the kind is on again, and the entry is %+v", entry)
	}
}

func TestReconcile_a_restart_changes_nothing_until_members_are_decided(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)
	version := redis.ResourceVersion

	f.restart(redisKind)
	f.directory.Set(snapshotOf(eu1, clusters.StateConnecting, false))
	f.settle(redis)
	if redis.ResourceVersion != version {
		t.Errorf("the restart changed the status to %+v", redis.Status)
	}
	published := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: eu1},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: eu1}},
	}
	f.create(f.hub, published)
	f.directory.Remove(eu1)
	f.settle(redis)
	if redis.ResourceVersion != version {
		t.Errorf("a registration that has not been read yet changed the status to %+v", redis.Status)
	}
	if err := f.hub.Delete(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	f.settle(redis)
	if entry := redis.Status.Clusters[0]; entry.Reason != flotillav1.ReasonNotRegistered {
		t.Errorf("an offboarded cluster is %+v", entry)
	}
}

func TestReconcile_a_new_generation(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	f.settle(redis)
	f.wantEvents("Normal ClusterReady eu-1: ")

	// A change of the placement alone does not affect the copy.
	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.ConflictPolicy = flotillav1.ConflictPolicyAdopt })
	f.settle(redis)
	if entry := redis.Status.Clusters[0]; entry.Ready != metav1.ConditionTrue || entry.ObservedGeneration != 2 {
		t.Errorf("a change of the placement made the copy %+v", entry)
	}
	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Port = 7000 })
	f.settle(redis)
	if entry := redis.Status.Clusters[0]; entry.Reason != flotillav1.ReasonPending || entry.ObservedGeneration != 2 || entry.UpdatedReplicas != 0 {
		t.Errorf("a copy of the previous generation is %+v", entry)
	}
	f.wantConditions(redis, map[string]string{"Ready": "False ClustersNotReady", "Placed": "False PlacementPending", "Progressing": "True PlacementPending"})
	spec(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Port = 7000 })
	f.place(redis, placed)
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Ready": "False ClustersNotReady", "Placed": "True AllPlaced", "Progressing": "True PlacementPending"})
	status(f, f.member, placed, observed)
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Ready": "True AllReady", "Progressing": "False Settled"})
	f.wantEvents("Normal ClusterReady eu-1: ")
}

// TestReconcile_primaries_and_failovers has them in the list, and in the sum also while a member cannot be observed.
func TestReconcile_primaries_and_failovers(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	placed := &flotillav1.Redis{Spec: flotillav1.RedisSpec{Mode: flotillav1.RedisModeSentinel, Replicas: new(int32(3))}}
	f.place(redis, placed)
	at := metav1.NewTime(f.clock.Now().Truncate(time.Second))
	status(f, f.member, placed, func(r *flotillav1.Redis) {
		observed(r)
		r.Status.Primary, r.Status.PrimaryEpoch, r.Status.Failovers, r.Status.LastFailoverTime = "web-1", new(int64(7)), 4, &at
	})
	f.settle(redis)
	check := func() {
		t.Helper()
		entry := redis.Status.Clusters[0]
		if entry.Primary != "web-1" || entry.Failovers != 4 || entry.LastFailoverTime == nil || !entry.LastFailoverTime.Equal(&at) {
			t.Errorf("the entry is %+v", entry)
		}
		if redis.Status.Failovers != 4 || redis.Status.Primary != "" || redis.Status.PrimaryEpoch != nil || redis.Status.LastFailoverTime != nil {
			t.Errorf("the status is %+v", redis.Status)
		}
	}
	check()
	f.directory.Set(snapshotOf(eu1, clusters.StateUnreachable, true))
	f.settle(redis)
	check()
}

func TestReconcile_what_members_say_is_not_trusted(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, func(r *flotillav1.Redis) {
		observed(r)
		r.Status.UpdatedReplicas, r.Status.Primary, r.Status.Failovers = -5, "a\x07b", -1
		r.Status.Conditions = ready(metav1.ConditionFalse, "Invented", "a\x07b")
	})
	f.settle(redis)
	if entry := redis.Status.Clusters[0]; entry.UpdatedReplicas != 0 || entry.Primary != "" || entry.Failovers != 0 || entry.Reason != flotillav1.ReasonOther || entry.Message != "a b" {
		t.Errorf("the entry is %+v", entry)
	}
}

func TestReconcile_placements_without_clusters(t *testing.T) {
	tests := map[string]struct {
		placement *flotillav1.Placement
		want      string
	}{
		"none":        {nil, "False NoPlacement"},
		"no match":    {&flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "moon"}}}, "False NoClusterSelected"},
		"not a value": {&flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "not a value"}}}, "False PlacementInvalid"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, redisKind)
			redis := f.newRedis(tc.placement)
			f.settle(redis)
			f.wantConditions(redis, map[string]string{"Ready": tc.want, "FullyReady": tc.want, "Placed": tc.want})
			if redis.Status.ObservedGeneration != 1 {
				t.Error("observedGeneration is missing")
			}
		})
	}
}

func TestReconcile_shows_why_placement_failed(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	key := fleet.ObjectKey{Kind: "Redis", Object: fleet.ObjectKey{}.Object}
	key.Object.Namespace, key.Object.Name = redis.Namespace, redis.Name
	f.r.Table.Set(key, eu1, fleet.Outcome{Generation: 1, Reason: flotillav1.ReasonNameConflict, Message: "In the way"})
	f.settle(redis)
	f.wantConditions(redis, map[string]string{"Ready": "False ClustersNotReady", "Placed": "False NameConflict", "Progressing": "False Settled"})
	if entry := redis.Status.Clusters[0]; entry.Message != "In the way" {
		t.Errorf("the entry is %+v", entry)
	}
}

func TestReconcile_never_touches_placedIn(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	f.read(f.hub, redis)
	stale := redis.DeepCopy()
	status(f, f.hub, redis, func(r *flotillav1.Redis) { r.Status.PlacedIn = []string{eu1} })
	// The pass uses a cache that does not contain the record yet.
	f.r.Hub = lagging{Client: f.hub, object: stale}
	f.pass(redis)
	f.clock.Step(minTransit)
	f.pass(redis)
	f.read(f.hub, redis)
	if len(redis.Status.PlacedIn) != 1 || redis.Status.ClusterCounts == nil {
		t.Errorf("the status is %+v", redis.Status)
	}
}

func TestReconcile_pace(t *testing.T) {
	f := newFixture(t, redisKind)
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	if writes, _ := f.pass(redis); writes != 1 {
		t.Fatalf("a transition made %d writes, want one at once", writes)
	}
	status(f, f.member, placed, func(r *flotillav1.Redis) {
		r.Status.Conditions = ready(metav1.ConditionFalse, flotillav1.ReasonReplicasNotReady, "2 of 3")
	})
	if writes, again := f.pass(redis); writes != 0 || again != time.Second {
		t.Errorf("a second transition within the second made %d writes, again in %s", writes, again)
	}
	f.clock.Step(time.Second)
	if writes, _ := f.pass(redis); writes != 1 {
		t.Errorf("the transition made %d writes after the second", writes)
	}
	f.clock.Step(time.Minute)
	for number := range int32(3) {
		status(f, f.member, placed, func(r *flotillav1.Redis) { r.Status.ReadyReplicas = number })
		if writes, _ := f.pass(redis); writes != 1 {
			t.Errorf("the first number after a while made %d writes, want one at once", writes)
		}
		status(f, f.member, placed, func(r *flotillav1.Redis) { r.Status.ReadyReplicas = number + 10 })
		if writes, again := f.pass(redis); writes != 0 || again != time.Second {
			t.Errorf("a number within the second made %d writes, again in %s", writes, again)
		}
		f.clock.Step(time.Minute)
		if writes, _ := f.pass(redis); writes != 1 {
			t.Errorf("the number made %d writes after the second", writes)
		}
		f.clock.Step(time.Minute)
	}
}

func TestReconcile_node_pool(t *testing.T) {
	f := newFixture(t, nodePoolKind)
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: flotillav1.NodePoolSpec{
		Placement: &flotillav1.Placement{Clusters: []string{eu1}}, Labels: map[string]flotillav1.LabelValue{"example.com/team": "ml"},
	}}
	f.create(f.hub, pool)
	placed := &flotillav1.NodePool{Spec: flotillav1.NodePoolSpec{Labels: pool.Spec.Labels}}
	f.place(pool, placed)
	status(f, f.member, placed, func(p *flotillav1.NodePool) {
		p.Status.ObservedGeneration, p.Status.Status = p.Generation, 200
		p.Status.NodeCount, p.Status.ReadyNodes, p.Status.UpdatedNodes, p.Status.UnschedulableNodes = 5, 4, 5, 1
		p.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20")}
		p.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("19")}
		p.Status.Zones = []flotillav1.NodeGroup{{Name: "a", NodeCount: 5, ReadyNodes: 4}}
		p.Status.OwnedKeys = []string{"label:example.com/team"}
		p.Status.Conditions = ready(metav1.ConditionTrue, flotillav1.ReasonAllNodesUpdated, "5 of 5")
	})
	f.settle(pool)
	if pool.Status.Status != 200 || pool.Status.NodeCount != 5 || pool.Status.Capacity.Cpu().String() != "20" || len(pool.Status.Zones) != 1 || len(pool.Status.OwnedKeys) != 0 {
		t.Errorf("the status is %+v", pool.Status)
	}
	version := pool.ResourceVersion
	f.restart(nodePoolKind)
	f.directory.Set(snapshotOf(eu1, clusters.StateSyncing, false))
	f.settle(pool)
	if pool.ResourceVersion != version {
		t.Errorf("a restart changed the status to %+v", pool.Status)
	}
	f.directory.Set(snapshotOf(eu1, clusters.StateUnreachable, true))
	f.settle(pool)
	if pool.Status.Status != 503 || pool.Status.NodeCount != 0 || pool.Status.Clusters[0].NodeCount != 5 {
		t.Errorf("during the outage the status is %+v", pool.Status)
	}
}
