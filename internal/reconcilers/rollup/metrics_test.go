// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// series returns the series of a metric that are not 0, by the values of their labels.
func series(t *testing.T, gatherer prometheus.Gatherer, metric string) map[string]float64 {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			var labels []string
			for _, label := range one.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			if value := one.GetGauge().GetValue(); family.GetName() == metric && value != 0 {
				values[strings.Join(labels, " ")] = value
			}
		}
	}
	return values
}

// published returns the metrics of a tally.
func published(t *testing.T, shown *tally, metric string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&tallyCollector{
		objects: tallies.objects, clusterObjects: tallies.clusterObjects, tallies: map[*tally]struct{}{shown: {}},
	})
	return series(t, registry, metric)
}

func TestMetrics_count_hub_objects_by_state(t *testing.T) {
	f := newFixture(t, redisKind)
	counted := newTally(f.directory, f.clock)
	f.r.tally = counted
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	want := func(want map[string]float64, when string) {
		t.Helper()
		if diff := cmp.Diff(want, published(t, counted, "flotilla_objects")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want(map[string]float64{}, "before the first pass")
	f.settle(redis)
	want(map[string]float64{"Redis Progressing": 1}, "a copy is on its way")
	f.clock.Step(stuckAfter)
	want(map[string]float64{"Redis Degraded": 1}, "nothing has moved for long")
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	f.settle(redis)
	want(map[string]float64{"Redis Progressing": 1}, "the copy is there")
	status(f, f.member, placed, observed)
	f.settle(redis)
	f.clock.Step(stuckAfter)
	want(map[string]float64{"Redis Ready": 1}, "the copy is ready")
	f.directory.Set(snapshotOf(eu1, clusters.StateUnreachable, true))
	f.settle(redis)
	want(map[string]float64{"Redis Unknown": 1}, "the member cannot be seen")
	f.directory.Set(snapshotOf(eu1, clusters.StateReady, true))
	status(f, f.member, placed, func(r *flotillav1.Redis) {
		r.Status.Conditions = ready(metav1.ConditionFalse, flotillav1.ReasonPrimaryNotReady, "")
	})
	f.settle(redis)
	want(map[string]float64{"Redis Degraded": 1}, "the copy is not ready")
	if err := f.hub.Delete(context.Background(), redis); err != nil {
		t.Fatal(err)
	}
	f.clock.Step(objectPace)
	f.pass(redis)
	want(map[string]float64{}, "the object is gone")
}

func TestMetrics_take_a_rollout_that_moves_for_progress(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	counted := newTally(clusterstest.NewDirectory(), clock)
	key := fleet.ObjectKey{Kind: "NodePool", Object: client.ObjectKey{Name: "web"}}
	pool := &flotillav1.NodePool{}
	pool.Status.Conditions = []metav1.Condition{{Type: flotillav1.ConditionReady, Status: "False"}, {Type: flotillav1.ConditionProgressing, Status: "True"}}
	for applied := range 5 {
		pool.Status.ClusterCounts = &flotillav1.ClusterCounts{Desired: 5, Applied: int32(applied)}
		counted.note(key, pool)
		clock.Step(stuckAfter - time.Second)
		counted.note(key, pool)
		if diff := cmp.Diff(map[string]float64{"NodePool Progressing": 1}, published(t, counted, "flotilla_objects")); diff != "" {
			t.Errorf("%d have the change (-want +got):\n%s", applied, diff)
		}
	}
	clock.Step(time.Second)
	if diff := cmp.Diff(map[string]float64{"NodePool Degraded": 1}, published(t, counted, "flotilla_objects")); diff != "" {
		t.Errorf("nothing moves any more (-want +got):\n%s", diff)
	}
}

func TestMetrics_count_the_objects_of_a_member(t *testing.T) {
	f, memberCluster := newSummaryFixture(t)
	name := memberCluster.Name
	f.create(f.hub, memberCluster)
	memberServer.Node(t, "node-"+name, nil)
	pass := func() {
		t.Helper()
		f.clock.Step(summaryPace)
		if _, err := f.summary.Reconcile(context.Background(), clusters.Request{Request: ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}}); err != nil {
			t.Fatal(err)
		}
	}
	start := func() {
		f.summary.tally = newTally(f.directory, f.clock)
		pass()
	}
	start()
	f.read(f.hub, memberCluster)
	known, unknown := map[string]float64{}, map[string]float64{}
	for kind, counts := range map[string]flotillav1.ObjectCounts{
		"Redis": memberCluster.Status.Summary.Redises, "NodePool": memberCluster.Status.Summary.NodePools, "Node": memberCluster.Status.Summary.Nodes,
	} {
		for labels, value := range map[string]int32{"Ready": counts.Ready, "NotReady": counts.Total - counts.Ready} {
			if value != 0 {
				known[fmt.Sprint(name, " ", kind, " ", labels)] = float64(value)
			}
		}
		if counts.Total != 0 {
			unknown[fmt.Sprint(name, " ", kind, " Unknown")] = float64(counts.Total)
		}
	}
	want := func(want map[string]float64, when string) {
		t.Helper()
		if diff := cmp.Diff(want, published(t, f.summary.tally, "flotilla_cluster_objects")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	if known[name+" Node Ready"] != 1 {
		t.Fatalf("the summary is %+v", memberCluster.Status.Summary)
	}
	want(known, "the member is seen")
	f.directory.Set(snapshotOf(name, clusters.StateUnreachable, true))
	want(unknown, "the member cannot be seen")
	start()
	want(unknown, "the manager has started meanwhile")
	f.directory.Remove(multicluster.ClusterName(name))
	want(map[string]float64{}, "the member is not registered any more")
	pass()
	f.directory.Set(snapshotOf(name, clusters.StatePending, false))
	want(map[string]float64{}, "another member gets the name")
}

func TestMetrics_tell_a_kind_that_is_off_from_one_that_is_well(t *testing.T) {
	members := clusterstest.NewDirectory(clusters.Snapshot{
		Name: eu1, State: clusters.StateReady, Off: map[string]string{"NodePool": flotillav1.ReasonForbidden},
	})
	counted := newTally(members, clocktesting.NewFakeClock(noon))
	counted.noteMember(eu1, &flotillav1.MemberClusterSummary{
		Redises: flotillav1.ObjectCounts{Total: 3, Ready: 2}, NodePools: flotillav1.ObjectCounts{Total: 1, Ready: 1}, Nodes: flotillav1.ObjectCounts{Total: 5, Ready: 5},
	})
	want := map[string]float64{"eu-1 Redis Ready": 2, "eu-1 Redis NotReady": 1, "eu-1 NodePool Unknown": 1, "eu-1 Node Unknown": 5}
	if diff := cmp.Diff(want, published(t, counted, "flotilla_cluster_objects")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
