// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// benchMember is a member with five pools and that many nodes, of which a fifth is in each pool and has its keys.
func benchMember(t testing.TB, nodes int) ([]flotillav1.NodePool, []corev1.Node) {
	t.Helper()
	var pools []*flotillav1.NodePool
	for i := range 5 {
		pools = append(pools, ownershiptest.Pool(fmt.Sprintf("pool-%d", i), func(spec *flotillav1.NodePoolSpec) {
			spec.NodeSelector = ownershiptest.Zone(flotillav1.LabelValue(fmt.Sprint(i)))
			spec.Labels = map[string]flotillav1.LabelValue{"example.com/team": "shop", "example.com/tier": "gold"}
			spec.Taints = []flotillav1.NodePoolTaint{{Key: "example.com/dedicated", Value: "shop", Effect: corev1.TaintEffectNoSchedule}}
		}))
	}
	// The nodes of a pool are alike but for their names, so one of each is settled.
	w := newWorld(t, pools...)
	var settled []*corev1.Node
	for i := range 5 {
		w.node = ownershiptest.Node("node", map[string]string{
			"zone": fmt.Sprint(i), corev1.LabelTopologyZone: fmt.Sprint("zone-", i), corev1.LabelArchStable: "arm64", corev1.LabelHostname: "node",
			corev1.LabelInstanceTypeStable: "m7g.large", "karpenter.sh/capacity-type": "spot", "topology.kubernetes.io/region": "eu",
		})
		w.node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7910m"), corev1.ResourceMemory: resource.MustParse("30Gi"), corev1.ResourcePods: resource.MustParse("110")}
		w.node.Status.Capacity = w.node.Status.Allocatable
		w.settle()
		settled = append(settled, w.node)
	}
	list := make([]corev1.Node, 0, nodes)
	for i := range nodes {
		node := settled[i%5].DeepCopy()
		node.Name = fmt.Sprintf("node-%04d", i)
		list = append(list, *node)
	}
	return w.list(), list
}

func benchSurvey(pools []flotillav1.NodePool, nodes []corev1.Node) ownership.Survey {
	return ownership.SurveyNodes(ownership.SurveyInput{
		Pool: &pools[0], Views: ownership.Views(pools), Nodes: nodes, Now: ownershiptest.Now.Time,
		Failure: func(string) ownership.Failure { return ownership.Failure{} },
		Fought:  func(*corev1.Node, ownership.Key) bool { return false },
	})
}

// TestAllocations_when_nothing_changes bounds what passes allocate over nodes that have all keys.
func TestAllocations_when_nothing_changes(t *testing.T) {
	pools, nodes := benchMember(t, 1000)
	views := ownership.Views(pools)
	for name, tc := range map[string]struct {
		run  func()
		most float64
	}{
		"whether a node matches": {func() { views[0].Matches(&nodes[1]) }, 0},
		"the plan of a node": {func() {
			if p := planNode(&nodes[0], views); !p.Empty() {
				t.Fatal(p)
			}
		}, 100},
		"the ownership.Survey of 1,000 nodes": {func() { benchSurvey(pools, nodes) }, 20_000},
	} {
		if got := testing.AllocsPerRun(10, tc.run); got > tc.most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", name, got, tc.most)
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	pools, nodes := benchMember(b, 5)
	b.Run("views", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ownership.Views(pools)
		}
	})
	views := ownership.Views(pools)
	b.Run("nothing to do", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p := planNode(&nodes[0], views); !p.Empty() {
				b.Fatal(p)
			}
		}
	})
	bare := ownershiptest.Node("node", map[string]string{"zone": "0"})
	b.Run("a node joins", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p := planNode(bare, views); p.Empty() {
				b.Fatal(p)
			}
		}
	})
}

func BenchmarkMatchers(b *testing.B) {
	pools, nodes := benchMember(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		for i := range pools {
			v := ownership.NewMatcher(&pools[i])
			for j := range nodes {
				v.Matches(&nodes[j])
			}
		}
	}
}

func BenchmarkSurvey_of_1000_nodes(b *testing.B) {
	pools, nodes := benchMember(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if found := benchSurvey(pools, nodes); found.Counts.NodeCount != 200 || len(found.Pending) > 0 {
			b.Fatal(found)
		}
	}
}
