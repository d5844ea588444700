// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

// lagging is a cache that returns an old version of an object.
type lagging struct {
	client.Client
	object *flotillav1.Redis
}

func (l lagging) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.object.DeepCopyInto(object.(*flotillav1.Redis))
	return nil
}

func TestVerdict(t *testing.T) {
	type numbered struct {
		fleet.Entry
		status int32
	}
	well := numbered{fleet.Entry{Fate: fleet.FateApply, Visible: true, Applied: true}, 200}
	with := func(change func(*numbered)) numbered {
		e := well
		change(&e)
		return e
	}
	away := with(func(e *numbered) { e.Visible = false })
	conflict := with(func(e *numbered) { e.Failed, e.Applied, e.Reason = true, false, flotillav1.ReasonNameConflict })
	failed := with(func(e *numbered) { e.Failed, e.Applied, e.Reason = true, false, flotillav1.ReasonApplyFailed })
	pending := with(func(e *numbered) { e.Applied = false })
	tests := map[string]struct {
		entries []numbered
		want    int32
	}{
		"none":                         {nil, 0},
		"all applied":                  {[]numbered{well, well}, 200},
		"some unreachable":             {[]numbered{well, away}, 206},
		"on its way":                   {[]numbered{well, pending}, 206},
		"conflict":                     {[]numbered{well, away, conflict}, 409},
		"conflict on nodes":            {[]numbered{with(func(e *numbered) { e.status = 409 })}, 409},
		"apply error":                  {[]numbered{conflict, away, failed}, 500},
		"error in the member":          {[]numbered{with(func(e *numbered) { e.status = 500 })}, 500},
		"none reachable":               {[]numbered{away}, 503},
		"one that goes is not counted": {[]numbered{well, with(func(e *numbered) { e.Fate, e.Visible = fleet.FateRemove, false })}, 200},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			worst := verdict{}
			for _, e := range tc.entries {
				worst.count(e.Entry, e.status, 1)
			}
			if got := worst.status(); got != tc.want {
				t.Errorf("status %d, want %d", got, tc.want)
			}
			for _, e := range tc.entries {
				worst.count(e.Entry, e.status, -1)
			}
			if worst != (verdict{}) {
				t.Errorf("%+v is left of nothing", worst)
			}
		})
	}
}

func TestTransitions(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus, reason string) flotillav1.ClusterStatus {
		return flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: reason, Message: reason}
	}
	before := []flotillav1.ClusterStatus{
		entry("a", "True", ""), entry("b", "True", ""), entry("c", "False", "ReplicasNotReady"), entry("d", "Unknown", "ClusterUnreachable"),
	}
	after := []flotillav1.ClusterStatus{
		entry("a", "Unknown", "ClusterUnreachable"), entry("b", "Unknown", "ClusterUnreachable"), entry("c", "True", "Leaving"),
		entry("d", "Unknown", "ClusterUnreachable"), entry("e", "False", "Pending"), entry("f", "True", ""),
	}
	var got []string
	var clusters []*cluster
	for _, entry := range after {
		made := &row{entry: fleet.Entry{ClusterStatus: entry}}
		clusters = append(clusters, &cluster{Observation: fleet.Observation{Name: entry.Name}, row: made})
	}
	for _, item := range transitions(changes(clusters, before, 0)) {
		got = append(got, fmt.Sprint(item.eventType, " ", item.reason, " ", item.names))
	}
	want := []string{"Warning ClusterUnreachable [a b]", "Normal ClusterReady [c f]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

func TestTooEarly(t *testing.T) {
	undecided := &cluster{Observation: fleet.Observation{Member: &fleet.Member{}}}
	if (state{stale: []*cluster{undecided}}).tooEarly() {
		t.Error("a new cluster that is undecided must not hold up the others")
	}
	if !(state{stale: []*cluster{undecided}, omitted: 1}).tooEarly() {
		t.Error("one that the list leaves out may have been well")
	}
}

// newSummaryFixture has one member, with a name of its own, and its MemberCluster, which is not on the hub yet.
func newSummaryFixture(t *testing.T) (*fixture, *flotillav1.MemberCluster) {
	t.Helper()
	f := newFixture(t, redisKind)
	f.directory.Replace()
	name := hubServer.Namespace(t) // Only the cluster is called eu-1.
	f.directory.Set(snapshotOf(name, clusters.StateReady, true))
	f.summary.Members = renamed{f.directory}
	return f, &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: name}},
	}
}

func TestSummary(t *testing.T) {
	f, memberCluster := newSummaryFixture(t)
	name := memberCluster.Name
	count := func() (int64, time.Duration) {
		t.Helper()
		before := f.writes.Load()
		result, err := f.summary.Reconcile(context.Background(), clusters.Request{Request: ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}})
		if err != nil {
			t.Fatal(err)
		}
		return f.writes.Load() - before, result.RequeueAfter
	}
	if writes, _ := count(); writes != 0 {
		t.Errorf("%d writes for a MemberCluster that does not exist", writes)
	}
	f.create(f.hub, memberCluster)
	status(f, f.hub, memberCluster, func(m *flotillav1.MemberCluster) { m.Status.KubernetesVersion = "v1.36.0" })
	memberServer.Node(t, "node-"+name, nil)
	unwell := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: memberServer.Namespace(t), Name: "own"}}
	f.create(f.member, unwell)
	status(f, f.member, unwell, func(r *flotillav1.Redis) {
		r.Status.Conditions = ready(metav1.ConditionFalse, flotillav1.ReasonPrimaryNotReady, "")
	})
	count()
	f.read(f.hub, memberCluster)
	summary := memberCluster.Status.Summary
	if summary == nil || summary.Nodes.Total != 1 || summary.NodesReady != "1/1" || summary.Redises.Total < 1 || memberCluster.Status.KubernetesVersion != "v1.36.0" {
		t.Fatalf("the status is %+v", memberCluster.Status)
	}
	var found bool
	for _, item := range memberCluster.Status.Attention {
		found = found || item.Namespace == unwell.Namespace && item.Reason == flotillav1.ReasonPrimaryNotReady && item.Since != nil
	}
	if !found {
		t.Errorf("attention is %+v", memberCluster.Status.Attention)
	}
	f.clock.Step(summaryPace)
	if writes, again := count(); writes != 0 || again != 0 {
		t.Errorf("a pass without a change made %d writes and wants to run again in %s", writes, again)
	}
	if err := f.member.Delete(context.Background(), unwell); err != nil {
		t.Fatal(err)
	}
	if writes, again := count(); writes != 1 || again != 0 {
		t.Errorf("a count after the interval made %d writes and wants to run again in %s", writes, again)
	}
	if writes, again := count(); writes != 0 || again != summaryPace {
		t.Errorf("a count made %d writes within the interval, again in %s", writes, again)
	}
	f.directory.Set(snapshotOf(name, clusters.StateUnreachable, true))
	f.clock.Step(summaryPace)
	if writes, _ := count(); writes != 0 {
		t.Error("counts changed although the member cannot be seen")
	}
}

// renamed is a directory in which every name leads to the one member.
type renamed struct{ *clusterstest.Directory }

func (r renamed) Member(multicluster.ClusterName) (ctrlcluster.Cluster, error) {
	return r.Directory.Member(eu1)
}

func TestCount_report_puts_the_longest_unwell_first(t *testing.T) {
	counted := count{}
	for i := range 30 {
		item := flotillav1.Attention{Kind: "Redis", Name: fmt.Sprintf("r-%02d", i)}
		if i > 0 {
			item.Since = sanitize.Moment(noon.Add(-time.Duration(i) * time.Minute))
		}
		counted.unwell = append(counted.unwell, item)
	}
	_, attention := counted.report()
	if len(attention) != 20 || attention[0].Name != "r-29" || attention[19].Name != "r-10" {
		t.Errorf("%d lines, from %s", len(attention), attention[0].Name)
	}
}

func TestCount_keeps_what_was_counted_of_a_kind_that_is_off(t *testing.T) {
	item := func(kind, reason string) flotillav1.Attention {
		return flotillav1.Attention{Kind: kind, Name: "one", Reason: reason}
	}
	last := &flotillav1.MemberClusterStatus{
		Summary: &flotillav1.MemberClusterSummary{
			Redises: flotillav1.ObjectCounts{Total: 5, Ready: 4}, NodePools: flotillav1.ObjectCounts{Total: 2, Ready: 2}, Nodes: flotillav1.ObjectCounts{Total: 9, Ready: 8},
		},
		Attention: []flotillav1.Attention{item("Redis", flotillav1.ReasonPending), item("NodePool", flotillav1.ReasonPending), item("NodePool", flotillav1.ReasonOrphaned)},
	}
	off := clusters.Snapshot{Off: map[string]string{"NodePool": flotillav1.ReasonForbidden}}
	counted := count{redises: flotillav1.ObjectCounts{Total: 6, Ready: 6}}
	counted.keep(off, last)
	want := count{
		redises: flotillav1.ObjectCounts{Total: 6, Ready: 6}, nodePools: last.Summary.NodePools, nodes: last.Summary.Nodes,
		unwell: []flotillav1.Attention{item("NodePool", flotillav1.ReasonPending)},
	}
	if diff := cmp.Diff(want, counted, cmp.AllowUnexported(count{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
