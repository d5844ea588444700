// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func surveyOf(pool *flotillav1.NodePool, nodes ...*corev1.Node) ownership.Survey {
	return surveyAll(pool, ownership.Views([]flotillav1.NodePool{*pool}), nodes...)
}

func surveyAll(pool *flotillav1.NodePool, views []*ownership.View, nodes ...*corev1.Node) ownership.Survey {
	in := ownership.SurveyInput{
		Pool: pool, Views: views, Now: ownershiptest.Now.Time,
		Failure: func(string) ownership.Failure { return ownership.Failure{} }, Fought: func(*corev1.Node, ownership.Key) bool { return false },
	}
	for _, node := range nodes {
		in.Nodes = append(in.Nodes, *node)
	}
	return ownership.SurveyNodes(in)
}

func TestSurvey_counts_and_sums(t *testing.T) {
	sized := func(name, zone string, change func(*corev1.Node)) *corev1.Node {
		node := ownershiptest.Node(name, map[string]string{"zone": "a", corev1.LabelTopologyZone: zone})
		node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi")}
		node.Status.NodeInfo.Architecture = "arm64"
		if change != nil {
			change(node)
		}
		return node
	}
	found := surveyOf(ownershiptest.Pool("a", ownershiptest.Wants(labelKey, "x")),
		sized("n1", "z1", nil),
		sized("n2", "z1", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		sized("n3", "z2", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }),
		sized("n4", "", func(n *corev1.Node) { n.Labels[labelKey.Name] = "theirs" }),
		sized("control", "z1", func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }),
		ownershiptest.Node("other", map[string]string{"zone": "b"}),
	)
	want := flotillav1.NodePoolCounts{
		NodeCount: 4, ReadyNodes: 3, UnschedulableNodes: 1, UpdatedNodes: 0, ConflictingNodes: 1,
		Architectures: []flotillav1.NodeGroup{{Name: "arm64", NodeCount: 4, ReadyNodes: 3}},
		Zones:         []flotillav1.NodeGroup{{Name: "z1", NodeCount: 2, ReadyNodes: 2}, {Name: "z2", NodeCount: 1}},
		Capacity:      corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("32Gi")},
		Allocatable:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("14"), corev1.ResourceMemory: resource.MustParse("28Gi")},
		Schedulable:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7"), corev1.ResourceMemory: resource.MustParse("14Gi")},
	}
	if diff := cmp.Diff(want, found.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestSurvey_bounds_what_nodes_say(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 100 {
		node := ownershiptest.Node(fmt.Sprintf("n%d", i), map[string]string{"zone": "a", corev1.LabelTopologyZone: fmt.Sprintf("z%03d", i)})
		node.Status.Capacity = corev1.ResourceList{corev1.ResourceName(fmt.Sprintf("example.com/r%03d", i)): resource.MustParse("1")}
		nodes = append(nodes, node)
	}
	counts := surveyOf(ownershiptest.Pool("a", nil), nodes...).Counts
	if len(counts.Zones) != 64 || len(counts.Capacity) != 64 {
		t.Errorf("got %d zones and %d resources", len(counts.Zones), len(counts.Capacity))
	}
	if last := counts.Zones[64-1]; last.Name != "other" || last.NodeCount != 37 {
		t.Errorf("the rest: got %+v", last)
	}
	if _, ok := counts.Capacity[corev1.ResourceMemory]; !ok {
		t.Error("memory was cut")
	}
}

func TestSurvey_keeps_the_last_requests_while_they_are_unknown(t *testing.T) {
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount), corev1.ResourceMemory: resource.MustParse("0")}
	}
	byNode := ownership.Requests{"n1": cpu("2"), "other": cpu("3")}
	tests := map[string]struct {
		usage *ownership.Usage
		want  corev1.ResourceList
	}{
		"not reported":     {nil, nil},
		"not read yet":     {&ownership.Usage{}, cpu("1")},
		"read":             {&ownership.Usage{ByNode: byNode}, cpu("2")},
		"not readable now": {&ownership.Usage{ByNode: byNode, Failure: ownership.Failure{Reason: flotillav1.ReasonForbidden}}, cpu("1")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := ownershiptest.Pool("a", nil)
			pool.Status.Requested = cpu("1")
			found := ownership.SurveyNodes(ownership.SurveyInput{
				Pool: pool, Views: ownership.Views([]flotillav1.NodePool{*pool}), Now: ownershiptest.Now.Time, Usage: tc.usage,
				Nodes:   []corev1.Node{*ownershiptest.Node("n1", map[string]string{"zone": "a"}), *ownershiptest.Node("other", map[string]string{"zone": "b"})},
				Failure: func(string) ownership.Failure { return ownership.Failure{} },
				Fought:  func(*corev1.Node, ownership.Key) bool { return false },
			})
			if diff := cmp.Diff(tc.want, found.Counts.Requested); diff != "" {
				t.Errorf("requested (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOwnedKeys(t *testing.T) {
	pool := ownershiptest.Pool("a", ownershiptest.Wants(labelKey, "x"))
	pool.Status.OwnedKeys = []string{"label:example.com/old"}
	if diff := cmp.Diff([]string{"label:example.com/old", "label:example.com/team"}, ownership.OwnedKeys(pool, nil)); diff != "" {
		t.Errorf("what the spec had is kept (-want +got):\n%s", diff)
	}
	recorded := sets.New[string]()
	for i := range 512 + 100 {
		k := fmt.Sprintf("label:example.com/k%04d", i)
		pool.Status.OwnedKeys = append(pool.Status.OwnedKeys, k)
		recorded.Insert(k)
	}
	if got := ownership.OwnedKeys(pool, sets.New("label:example.com/k0001")); len(got) != 2 {
		t.Errorf("too many keys are cut to those on nodes: got %d", len(got))
	}
	if got := ownership.OwnedKeys(pool, recorded); len(got) != 512 || !sets.New(got...).Has(labelKey.String()) {
		t.Errorf("never more than %d, the spec's among them: got %d", 512, len(got))
	}
}
