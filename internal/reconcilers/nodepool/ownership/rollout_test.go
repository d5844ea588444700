// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func TestRolloutOf(t *testing.T) {
	evicting := func(change func(*flotillav1.NodePoolSpec)) *flotillav1.NodePool {
		return ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) {
			ownershiptest.Wants(evictKey, "x")(spec)
			if change != nil {
				change(spec)
			}
		})
	}
	budget := func(value intstr.IntOrString, seconds int32) func(*flotillav1.NodePoolSpec) {
		return func(spec *flotillav1.NodePoolSpec) {
			spec.Rollout = &flotillav1.NodePoolRollout{MaxUnavailable: &value, MinReadySeconds: seconds}
		}
	}
	recently := metav1.NewTime(ownershiptest.Now.Add(-10 * time.Second))
	tests := map[string]struct {
		pool *flotillav1.NodePool
		// nodes are written as one letter each: R ready, N not ready, T tainted ten seconds ago, F with a foreign value.
		nodes  string
		want   []string
		halted bool
	}{
		"one at a time":                        {pool: evicting(nil), nodes: "RRRR", want: []string{"n0"}},
		"the next when one has it":             {pool: evicting(nil), nodes: "TRRR", want: []string{"n1"}},
		"a number":                             {pool: evicting(budget(intstr.FromInt32(3), 0)), nodes: "RRRRR", want: []string{"n0", "n1", "n2"}},
		"a percentage is rounded up":           {pool: evicting(budget(intstr.FromString("30%"), 0)), nodes: "RRRRR", want: []string{"n0", "n1"}},
		"none within minReadySeconds":          {pool: evicting(budget(intstr.FromInt32(1), 60)), nodes: "TRRR"},
		"the next after minReadySeconds":       {pool: evicting(budget(intstr.FromInt32(1), 5)), nodes: "TRRR", want: []string{"n1"}},
		"one that is not ready uses it up":     {pool: evicting(nil), nodes: "RRRRRN", want: []string{"n5"}},
		"halted when too many are not ready":   {pool: evicting(nil), nodes: "RRRN", halted: true},
		"a foreign value is not waited for":    {pool: evicting(nil), nodes: "FRRR", want: []string{"n1"}},
		"a foreign value that is overridden":   {pool: evicting(func(s *flotillav1.NodePoolSpec) { s.ConflictPolicy = flotillav1.NodeConflictPolicyOverride }), nodes: "FRRR", want: []string{"n0"}},
		"zero holds all":                       {pool: evicting(budget(intstr.FromInt32(0), 0)), nodes: "RRRR"},
		"nonsense is the default":              {pool: evicting(budget(intstr.FromString("many"), 0)), nodes: "RRRR", want: []string{"n0"}},
		"nothing to do when all nodes have it": {pool: evicting(nil), nodes: "TTTT"},
		"an empty pool":                        {pool: evicting(nil)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var nodes []corev1.Node
			for i, letter := range tc.nodes {
				node := ownershiptest.Node(fmt.Sprintf("n%d", i), map[string]string{"zone": "a"})
				switch letter {
				case 'N':
					node.Status.Conditions[0].Status = corev1.ConditionUnknown
				case 'T':
					node.Spec.Taints = []corev1.Taint{{Key: evictKey.Name, Value: "x", Effect: evictKey.Effect, TimeAdded: &recently}}
				case 'F':
					node.Spec.Taints = []corev1.Taint{{Key: evictKey.Name, Value: "theirs", Effect: evictKey.Effect}}
				}
				nodes = append(nodes, *node)
			}
			nodes = append(nodes, *ownershiptest.Node("other", map[string]string{"zone": "b"}))
			got := ownership.RolloutOf(ownership.NewView(tc.pool), nodes, ownershiptest.Now.Time)
			if diff := cmp.Diff(tc.want, append([]string(nil), sets.List(got.Turns)...)); diff != "" || got.Halted != tc.halted {
				t.Errorf("halted %t, turns (-want +got):\n%s", got.Halted, diff)
			}
		})
	}
}
