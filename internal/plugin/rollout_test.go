// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"io"
	"maps"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// edge returns a pool of both members, in which each change soaks for an hour. Its copies stay, so that no later removal
// waits for a confirmation.
func edge(tier string) *flotillav1.NodePool {
	return &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "edge"},
		Spec: flotillav1.NodePoolSpec{
			NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"pool": "edge"}},
			Labels:       map[string]flotillav1.LabelValue{"example.com/tier": flotillav1.LabelValue(tier)},
			Placement: &flotillav1.Placement{
				Clusters: []string{"eu-1", "us-1"}, Rollout: &flotillav1.Rollout{SoakSeconds: 3600}, DeletionPolicy: flotillav1.DeletionPolicyOrphan,
			},
		},
	}
}

func TestCountStages_of_clusters_that_are_not_listed(t *testing.T) {
	listed := []stageItem{{Stage: stageWaiting}, {Stage: stageWaiting}, {Stage: stageUnseen}}
	status := &flotillav1.FleetStatus{ClustersOmitted: 97, Rollout: &flotillav1.RolloutStatus{Done: 10, Changing: 5, Failed: 1, Waiting: 80}}
	want := map[string]int{stageDone: 10, stageOnTrial: 5, stageFailed: 1, stageWaiting: 80, stageReverted: 0, stageUnseen: 1}
	if got := countStages(status, listed); !maps.Equal(got, want) {
		t.Errorf("under way: %v, want %v", got, want)
	}
	status.Rollout = &flotillav1.RolloutStatus{Failed: 1, Reverted: 96}
	want = map[string]int{stageDone: 0, stageOnTrial: 0, stageFailed: 1, stageWaiting: 0, stageReverted: 96, stageUnseen: 1}
	if got := countStages(status, listed); !maps.Equal(got, want) {
		t.Errorf("taken back: %v, want %v", got, want)
	}
	status.Rollout = nil
	want = map[string]int{stageDone: 97, stageWaiting: 2, stageUnseen: 1}
	if got := countStages(status, listed); !maps.Equal(got, want) {
		t.Errorf("at other times: %v, want %v", got, want)
	}
}

func TestPrintRollout_of_a_change_that_was_taken_back(t *testing.T) {
	pool := edge("two")
	pool.Generation = 7
	pool.Status.Change = &flotillav1.Change{Rollout: "abc", Revert: &flotillav1.Revert{Message: "Not ready in time: us-1"}}
	pool.Status.Conditions = []metav1.Condition{{
		Type: flotillav1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: flotillav1.ReasonRolloutReverted, ObservedGeneration: 7,
		Message: "Not ready in time: us-1; what the clusters had before is in place",
	}}
	for _, entry := range []flotillav1.ClusterStatus{
		{Name: "eu-1", Ready: metav1.ConditionFalse, Reason: flotillav1.ReasonReverted, ObservedGeneration: 6},
		{Name: "us-1", Ready: metav1.ConditionFalse, Reason: flotillav1.ReasonReverted, ObservedGeneration: 7},
		{Name: "us-2", Ready: metav1.ConditionUnknown, ObservedGeneration: 6},
		{Name: "us-3", Ready: metav1.ConditionTrue, ObservedGeneration: 7},
	} {
		pool.Status.Clusters = append(pool.Status.Clusters, flotillav1.NodePoolClusterStatus{ClusterStatus: entry})
	}
	out := &strings.Builder{}
	tool := &tool{Console: console.New(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}, clock.RealClock{})}
	tool.printRollout(targetOf(pool), pool)
	for _, part := range []string{
		"RolloutReverted", "Clusters: 2 reverted, 1 not seen, 1 done", "kubectl flotilla rollout retry nodepool/edge", "kubectl flotilla rollout undo nodepool/edge",
	} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not in\n%s", part, out)
		}
	}
}

func (s *story) rollout(t *testing.T) {
	ctx := context.Background()
	for _, member := range []*testenv.Cluster{eu1, us1} {
		addNode(t, member, "node-edge", "edge", true)
	}
	pool := edge("one")
	apply(t, pool, "NodePool")
	progress := func(reason string) {
		t.Helper()
		s.eventually("the rollout is "+reason, func() (bool, error) {
			err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
			found := apimeta.FindStatusCondition(pool.Status.Conditions, flotillav1.ConditionProgressing)
			return found != nil && found.ObservedGeneration == pool.Generation && found.Reason == reason, err
		})
	}
	s.eventually("the pool is ready", func() (bool, error) {
		err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		return apimeta.IsStatusConditionTrue(pool.Status.Conditions, flotillav1.ConditionFullyReady), err
	})
	progress(flotillav1.ReasonSettled)
	if got := s.must("rollout", "status", "nodepool/edge", "--watch").out; !strings.Contains(got, "Clusters: 2 done") {
		t.Errorf("a rollout that is over shows\n%s", got)
	}

	apply(t, edge("two"), "NodePool")
	soaking := func() {
		t.Helper()
		s.eventually("one cluster is on trial and ready", func() (bool, error) {
			err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
			first := pool.Status.Clusters[0]
			under := flotillav1.RolloutStatus{Changing: 1, Waiting: 1}
			return first.Ready == metav1.ConditionTrue && first.ObservedGeneration == pool.Generation && len(pool.Status.Trials) == 1 &&
				ptr.Deref(pool.Status.Rollout, flotillav1.RolloutStatus{}) == under, err
		})
	}
	soaking()
	progress(flotillav1.ReasonRollingOut)
	show(t, "rollout", "rollout status nodepool/edge", s.must("rollout", "status", "nodepool/edge"))

	moving := read[rolloutItem](t, s.must("rollout", "status", "nodepool/edge", "-o", "json"))
	if moving.Object != "nodepool/edge" || moving.Reason != flotillav1.ReasonRollingOut || moving.Over || len(moving.Clusters) != 2 || moving.Clusters[0].Stage != stageOnTrial {
		t.Errorf("a script reads %+v", moving)
	}
	show(t, "rollout-pause", "rollout pause nodepool/edge", s.must("rollout", "pause", "nodepool/edge"))
	progress(flotillav1.ReasonRolloutPaused)
	if got := s.must("rollout", "status", "nodepool", "edge").out; !strings.Contains(got, "Go on with: kubectl flotilla rollout resume nodepool/edge") {
		t.Errorf("a paused rollout shows\n%s", got)
	}
	if got := s.must("rollout", "pause", "nodepool/edge").out; !strings.Contains(got, "is paused already") {
		t.Errorf("pausing again says\n%s", got)
	}

	watching, stop := context.WithCancel(ctx)
	screen, ended := &screen{}, make(chan int)
	go func() {
		ended <- s.runInto(watching, strings.NewReader(""), screen, io.Discard, "rollout", "status", "nodepool/edge", "-w")
	}()
	s.eventually("the pause shows", func() (bool, error) { return strings.Contains(screen.String(), "RolloutPaused"), nil })
	s.must("rollout", "resume", "nodepool/edge")
	progress(flotillav1.ReasonRollingOut)
	s.eventually("the rollout shows", func() (bool, error) { return strings.Contains(screen.String(), "RollingOut"), nil })
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("watching ends with %d", code)
	}

	var items []revisionItem
	s.eventually("the change is recorded", func() (bool, error) {
		items = read[itemList[revisionItem]](t, s.must("rollout", "history", "nodepool/edge", "-o", "yaml")).Items
		return len(items) == 2 && items[0].Present && !items[1].Present, nil
	})
	show(t, "rollout-history", "rollout history nodepool/edge", s.must("rollout", "history", "nodepool/edge"))
	if got := s.must("rollout", "history", "nodepool/edge", "--revision", "1").out; !strings.Contains(got, "kind: ControllerRevision") || !strings.Contains(got, "example.com/tier: one") {
		t.Errorf("the first revision is\n%s", got)
	}
	generation := pool.Generation
	if got := s.must("rollout", "undo", "nodepool/edge", "--dry-run").out; !strings.Contains(got, "would go back to revision 1: labels.example.com/tier two → one") {
		t.Errorf("trying to go back says\n%s", got)
	}
	show(t, "rollout-undo", "rollout undo nodepool/edge", s.must("rollout", "undo", "nodepool/edge"))
	progress(flotillav1.ReasonSettled)
	if pool.Generation != generation+1 || pool.Spec.Labels["example.com/tier"] != "one" || pool.Spec.Placement.Rollout.SoakSeconds != 3600 {
		t.Errorf("generation %d is now generation %d: %+v", generation, pool.Generation, pool.Spec)
	}
	s.eventually("going to the present revision changes nothing", func() (bool, error) {
		got := s.run("rollout", "undo", "nodepool/edge", "--to-revision", strconv.FormatInt(pool.Generation, 10))
		return strings.Contains(got.out, "already"), nil
	})
	s.fails([]string{"has no revision 9", "rollout history nodepool/edge"}, "rollout", "undo", "nodepool/edge", "--to-revision", "9")

	if got := s.must("rollout", "promote", "nodepool/edge").out; !strings.Contains(got, "No change of nodepool/edge is under way") {
		t.Errorf("promoting nothing says\n%s", got)
	}
	if got := s.must("rollout", "retry", "nodepool/edge").out; !strings.Contains(got, "No change of nodepool/edge was taken back") {
		t.Errorf("trying nothing again says\n%s", got)
	}
	if err := hubServer.Client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"labels":{"example.com/tier":"three"}}}`))); err != nil {
		t.Fatal(err)
	}
	soaking()
	s.must("rollout", "pause", "nodepool/edge")
	progress(flotillav1.ReasonRolloutPaused)
	s.fails([]string{"the rollout of nodepool/edge is paused", "first go on with kubectl flotilla rollout resume nodepool/edge"}, "rollout", "promote", "nodepool/edge", "--full")
	s.must("rollout", "resume", "nodepool/edge")
	soaking()
	show(t, "rollout-promote", "rollout promote nodepool/edge", s.must("rollout", "promote", "nodepool/edge"))
	progress(flotillav1.ReasonSettled)
	s.eventually("the promotion is over", func() (bool, error) {
		err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		return pool.Annotations[flotillav1.AnnotationPromote] == "" && pool.Spec.Labels["example.com/tier"] == "three", err
	})

	s.fails([]string{"has no nodepool/other", "check the name"}, "rollout", "status", "nodepool/other")
	s.fails([]string{"redis/NAME or nodepool/NAME is needed"}, "rollout", "pause")
	apply(t, &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}, Spec: flotillav1.NodePoolSpec{NodeSelector: edge("").Spec.NodeSelector}}, "NodePool")
	for _, command := range []string{"status", "pause", "resume", "promote", "retry", "history", "undo"} {
		s.fails([]string{"nodepool/nowhere is placed nowhere", "spec.placement"}, "rollout", command, "nodepool/nowhere")
	}
	gone := func(cluster *testenv.Cluster, name string) {
		t.Helper()
		if err := cluster.Client.Delete(ctx, &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
		s.eventually(name+" is gone", func() (bool, error) {
			err := cluster.Client.Get(ctx, client.ObjectKey{Name: name}, &flotillav1.NodePool{})
			return err != nil, client.IgnoreNotFound(err)
		})
	}
	gone(hubServer, "nowhere")
	gone(hubServer, "edge")
	for _, member := range []*testenv.Cluster{eu1, us1} {
		gone(member, "edge")
		if err := member.Client.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{"pool": "edge"}); err != nil {
			t.Fatal(err)
		}
	}
}
