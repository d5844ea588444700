// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
			spec.Rollout = &flotillav1.NodePoolRollout{MaxUnavailable: &value, MinReadySeconds: &seconds}
		}
	}
	recently, youth := metav1.NewTime(ownershiptest.Now.Add(-10*time.Second)), metav1.NewTime(ownershiptest.Now.Add(-30*time.Second))
	// waits are those of consecutive nodes from one on, in seconds.
	waits := func(node int, seconds ...int) map[string]time.Duration {
		all := map[string]time.Duration{}
		for i, s := range seconds {
			all[fmt.Sprintf("n%d", node+i)] = time.Duration(s) * time.Second
		}
		return all
	}
	tests := map[string]struct {
		pool *flotillav1.NodePool
		// nodes are written as one letter each: R ready, N not ready, T tainted ten seconds ago, F with a foreign value; Y
		// younger than a minute, and y young and tainted.
		nodes  string
		want   []string
		waits  map[string]time.Duration
		halted bool
	}{
		"one at a time":                        {pool: evicting(nil), nodes: "RRR", want: []string{"n0"}, waits: waits(1, 60, 120)},
		"the next a minute after one has it":   {pool: evicting(nil), nodes: "TRR", waits: waits(1, 50, 110)},
		"the next at once without a pause":     {pool: evicting(budget(intstr.FromInt32(1), 0)), nodes: "TRRR", want: []string{"n1"}},
		"a young node does not wait":           {pool: evicting(nil), nodes: "TYR", want: []string{"n1"}, waits: waits(2, 50)},
		"nobody waits for a young node":        {pool: evicting(nil), nodes: "yRR", want: []string{"n1"}, waits: waits(2, 60)},
		"without a pause no node is young":     {pool: evicting(budget(intstr.FromInt32(1), 0)), nodes: "RYY", want: []string{"n0"}},
		"a number":                             {pool: evicting(budget(intstr.FromInt32(2), 30)), nodes: "RRRRR", want: []string{"n0", "n1"}, waits: waits(2, 30, 30, 60)},
		"a percentage is rounded up":           {pool: evicting(budget(intstr.FromString("30%"), 0)), nodes: "RRRRR", want: []string{"n0", "n1"}},
		"none within minReadySeconds":          {pool: evicting(budget(intstr.FromInt32(1), 60)), nodes: "TRRR", waits: waits(1, 50, 110, 170)},
		"the next after minReadySeconds":       {pool: evicting(budget(intstr.FromInt32(1), 5)), nodes: "TRR", want: []string{"n1"}, waits: waits(2, 5)},
		"one that is not ready uses it up":     {pool: evicting(budget(intstr.FromInt32(1), 0)), nodes: "RRRRRN", want: []string{"n5"}},
		"halted when too many are not ready":   {pool: evicting(nil), nodes: "RRRN", halted: true},
		"a foreign value is not waited for":    {pool: evicting(budget(intstr.FromInt32(1), 0)), nodes: "FRRR", want: []string{"n1"}},
		"a foreign value that is overridden":   {pool: evicting(func(s *flotillav1.NodePoolSpec) { s.ConflictPolicy = flotillav1.NodeConflictPolicyOverride }), nodes: "FR", want: []string{"n0"}, waits: waits(1, 60)},
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
				if letter == 'Y' || letter == 'y' {
					node.CreationTimestamp = youth
				}
				switch letter {
				case 'N':
					node.Status.Conditions[0].Status = corev1.ConditionUnknown
				case 'T', 'y':
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
			if diff := cmp.Diff(tc.waits, got.Waits, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
		})
	}
}
