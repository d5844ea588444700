// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// manyMembers is a hub object with a ready copy in each of 140 members, c-001 to c-140.
func manyMembers(t *testing.T) (*fixture, *flotillav1.Redis) {
	t.Helper()
	f := newFixture(t, redisKind)
	var names []string
	for i := range 140 {
		names = append(names, fmt.Sprintf("c-%03d", i+1))
	}
	redis := f.newRedis(&flotillav1.Placement{Clusters: names})
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	for _, name := range names {
		f.directory.Set(snapshotOf(name, clusters.StateReady, true))
		f.directory.Engage(multicluster.ClusterName(name), uncached{client: snapshot{f.member, placed}})
	}
	status(f, f.hub, redis, func(r *flotillav1.Redis) { r.Status.PlacedIn = names })
	f.settle(redis)
	f.wantEvents("Normal ClusterReady c-001, c-002, c-003, c-004, c-005 and 135 more: Ready")
	return f, redis
}

// TestReconcile_events_of_more_clusters_than_the_list_has covers clusters that enter or leave the list without a change.
func TestReconcile_events_of_more_clusters_than_the_list_has(t *testing.T) {
	for name, between := range map[string]func(*fixture){
		"in one process":                    func(*fixture) {},
		"in a process of its own each time": func(f *fixture) { f.restart(redisKind) },
	} {
		t.Run(name, func(t *testing.T) {
			f, redis := manyMembers(t)
			become := func(name string, state clusters.State, want ...string) {
				t.Helper()
				f.directory.Set(snapshotOf(name, state, true))
				f.r.views.mark(client.ObjectKeyFromObject(redis), name)
				f.clock.Step(2 * time.Second)
				f.settle(redis)
				f.wantEvents(want...)
				between(f)
			}
			f.r.views = newViews()
			f.settle(redis)
			f.wantEvents()
			become("c-140", clusters.StateUnreachable, "Warning ClusterUnreachable c-140: ")
			become("c-139", clusters.StateUnreachable, "Warning ClusterUnreachable c-139: ")
			become("c-140", clusters.StateReady, "Normal ClusterReady c-140: Ready")
			become("c-139", clusters.StateReady, "Normal ClusterReady c-139: Ready")
			become("c-001", clusters.StateUnreachable, "Warning ClusterUnreachable c-001: ")
			become("c-001", clusters.StateReady, "Normal ClusterReady c-001: Ready")
			// A change of the hub object causes no events of its own, and loses none.
			spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Annotations = map[string]string{"example.com/a": "b"} })
			become("c-120", clusters.StateUnreachable, "Warning ClusterUnreachable c-120: ")
		})
	}
}

// After a restart, a list without any ready cluster provides no information about the omitted ones.
func TestChanges_says_nothing_about_clusters_of_which_nothing_is_known(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus) flotillav1.ClusterStatus {
		return flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: flotillav1.ReasonClusterUnreachable}
	}
	after := fleet.Entry{ClusterStatus: entry("c-140", metav1.ConditionUnknown)}
	clusters := []*cluster{{Observation: fleet.Observation{Name: "c-140"}, row: &row{entry: after}}}
	names := func(before []flotillav1.ClusterStatus, omitted int32) []string {
		var names []string
		for _, item := range transitions(changes(clusters, before, omitted)) {
			names = append(names, item.names...)
		}
		return names
	}
	if got := names([]flotillav1.ClusterStatus{entry("c-001", metav1.ConditionUnknown)}, 40); got != nil {
		t.Errorf("it may have been so before: %v", got)
	}
	if diff := cmp.Diff([]string{"c-140"}, names([]flotillav1.ClusterStatus{entry("c-001", metav1.ConditionTrue)}, 40)); diff != "" {
		t.Errorf("it was ready, because ready ones were listed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c-140"}, names(nil, 0)); diff != "" {
		t.Errorf("it is new (-want +got):\n%s", diff)
	}
}

func TestReconcile_keeps_what_is_known_of_clusters_outside_the_list_when_the_spec_changes(t *testing.T) {
	f, redis := manyMembers(t)
	f.r.views = newViews()
	f.settle(redis)
	before := f.r.views.byObject[client.ObjectKeyFromObject(redis)].view.clusters["c-140"].lastEntry()
	f.clock.Step(time.Hour)
	spec(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.ConflictPolicy = flotillav1.ConflictPolicyAdopt })
	f.settle(redis)
	after := f.r.views.byObject[client.ObjectKeyFromObject(redis)].view.clusters["c-140"].lastEntry()
	if after == before || !after.Since.Equal(before.Since) {
		t.Errorf("since %v, was %v", after.Since, before.Since)
	}
	f.wantEvents()
}
