// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// starting wants taints that are put on once, when a node joins.
func starting(value string, keys ...ownership.Key) func(*flotillav1.NodePoolSpec) {
	return func(spec *flotillav1.NodePoolSpec) {
		for _, k := range keys {
			spec.Taints = append(spec.Taints, flotillav1.NodePoolTaint{
				Key: k.Name, Value: value, Effect: k.Effect, Propagation: flotillav1.TaintPropagationOnInitialization,
			})
		}
	}
}

func TestPlan_startup_taint_is_not_lost_while_it_waits(t *testing.T) {
	held := func(*ownership.View) bool { return false }
	tests := map[string]struct {
		pools []*flotillav1.NodePool
		// wait brings about that the taint waits, turn that it may come.
		wait, turn func(w *world)
		key        ownership.Key
		want       string
		// after is what is there once others have taken it off.
		after string
	}{
		"for the turn of its node": {
			pools: []*flotillav1.NodePool{ownershiptest.Pool("a", starting("x", evictKey))},
			wait:  func(w *world) { w.mayEvict = held },
			turn:  func(w *world) { w.mayEvict = always },
			key:   evictKey, want: "x", after: absent,
		},
		"for the turn of its node, with keys that do not wait": {
			pools: []*flotillav1.NodePool{ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) {
				spec.Labels = map[string]flotillav1.LabelValue{labelKey.Name: "x"}
				starting("x", evictKey)(spec)
			})},
			wait: func(w *world) { w.mayEvict = held },
			turn: func(w *world) { w.mayEvict = always },
			key:  evictKey, want: "x", after: absent,
		},
		"for a paused pool that has the key": {
			pools: []*flotillav1.NodePool{ownershiptest.Pool("b", ownershiptest.Wants(taintKey, "b"))},
			wait: func(w *world) {
				w.settle()
				w.pools["b"].Spec.Paused = true
				w.pools["a"] = ownershiptest.Pool("a", starting("x", taintKey))
				w.pools["a"].Spec.Weight = 9
			},
			turn: func(w *world) { w.pools["b"].Spec.Paused = false },
			key:  taintKey, want: "x", after: "b",
		},
		"for a higher pool that waits itself and goes": {
			pools: []*flotillav1.NodePool{ownershiptest.Pool("a", starting("x", evictKey))},
			wait: func(w *world) {
				w.pools["b"] = ownershiptest.Pool("b", ownershiptest.Wants(evictKey, "b"))
				w.pools["b"].Spec.Weight = 9
				w.mayEvict = held
			},
			turn: func(w *world) {
				delete(w.pools, "b")
				w.mayEvict = always
			},
			key: evictKey, want: "x", after: absent,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.pools...)
			tc.wait(w)
			for range 3 {
				w.settle()
			}
			if got := w.get(tc.key); got == tc.want {
				t.Fatalf("%s did not wait", tc.key)
			}
			tc.turn(w)
			w.settle()
			w.want(tc.key, tc.want)
			// From here on it is not put on again.
			w.drop(tc.key)
			w.settle()
			w.want(tc.key, tc.after)
		})
	}
}

func TestPlan_startup_taint_that_waits_goes_with_the_spec_and_the_node(t *testing.T) {
	w := newWorld(t, ownershiptest.Pool("a", starting("x", evictKey)))
	w.mayEvict = func(*ownership.View) bool { return false }
	w.settle()
	w.pools["a"].Spec.Taints = nil
	if p := w.settle(); p.EvictionsHeld {
		t.Error("a taint that nothing wants still waits")
	}
	starting("x", evictKey)(&w.pools["a"].Spec)
	w.mayEvict = always
	w.settle()
	// The node has joined long ago.
	w.want(evictKey, absent)

	w = newWorld(t, ownershiptest.Pool("a", starting("x", evictKey)))
	w.mayEvict = func(*ownership.View) bool { return false }
	w.settle()
	w.node.Labels["zone"] = "b"
	w.settle()
	if len(w.node.Annotations) > 0 {
		t.Errorf("annotations left over: %v", w.node.Annotations)
	}
}

func TestRolloutOf_startup_taints_that_wait(t *testing.T) {
	w := newWorld(t, ownershiptest.Pool("a", starting("x", evictKey)))
	w.mayEvict = func(*ownership.View) bool { return false }
	w.settle()
	v := ownership.NewView(w.pools["a"])
	if got := ownership.RolloutOf(v, []corev1.Node{*w.node}, ownershiptest.Now.Time); got.Pending != 1 || !got.Turns.Equal(sets.New(w.node.Name)) {
		t.Errorf("a node that waits: got %+v", got)
	}
	w.mayEvict = always
	w.settle()
	w.drop(evictKey)
	if got := ownership.RolloutOf(v, []corev1.Node{*w.node}, ownershiptest.Now.Time); got.Pending != 0 {
		t.Errorf("a node that has had the taint: got %+v", got)
	}
}
