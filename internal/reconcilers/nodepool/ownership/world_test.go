// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// world is one node and the pools of its member, with the pool controller's part (authority) done by hand.
type world struct {
	t     testing.TB
	node  *corev1.Node
	pools map[string]*flotillav1.NodePool
	// last is the plan of the last settle.
	last ownership.Plan
	// fought and mayEvict go into each plan.
	fought   func(ownership.Key) bool
	mayEvict func(*ownership.View) bool
}

func newWorld(t testing.TB, pools ...*flotillav1.NodePool) *world {
	t.Helper()
	w := &world{
		t: t, node: ownershiptest.Node("n1", map[string]string{"zone": "a"}), pools: map[string]*flotillav1.NodePool{}, fought: never, mayEvict: always,
	}
	for _, pool := range pools {
		w.pools[pool.Name] = pool
	}
	return w
}

// never and always are what the memory of fights and the rollout say when there is nothing to wait for.
func never(ownership.Key) bool    { return false }
func always(*ownership.View) bool { return true }

func (w *world) list() []flotillav1.NodePool {
	var pools []flotillav1.NodePool
	for _, name := range slices.Sorted(maps.Keys(w.pools)) {
		pools = append(pools, *w.pools[name])
	}
	return pools
}

// authorise does what the pool controller does before nodes are written.
func (w *world) authorise() {
	for _, pool := range w.pools {
		pool.Finalizers = []string{flotillav1.FinalizerNodePool}
		if !ownership.ReadOnly(pool) {
			pool.Status.OwnedKeys = ownership.OwnedKeys(pool, sets.New[string]())
		}
	}
}

// planNode plans with nothing to wait for.
func planNode(node *corev1.Node, views []*ownership.View) ownership.Plan {
	return ownership.PlanNode(ownership.PlanInput{Node: node, Views: views, Now: ownershiptest.Now.Time, Fought: never, MayEvict: always})
}

func (w *world) plan() ownership.Plan {
	return ownership.PlanNode(ownership.PlanInput{Node: w.node, Views: ownership.Views(w.list()), Now: ownershiptest.Now.Time, Fought: w.fought, MayEvict: w.mayEvict})
}

// settle authorises, plans, applies the real patch, and checks that a second plan is empty.
func (w *world) settle() ownership.Plan {
	w.t.Helper()
	w.authorise()
	return w.apply()
}

func (w *world) apply() ownership.Plan {
	w.t.Helper()
	w.last = w.plan()
	if !w.last.Empty() {
		w.node = patched(w.t, w.node, w.last)
	}
	if again := w.plan(); !again.Empty() {
		data, _ := again.Patch(w.node)
		w.t.Fatalf("a second plan is not empty: %s", data)
	}
	return w.last
}

func patched(t testing.TB, node *corev1.Node, p ownership.Plan) *corev1.Node {
	t.Helper()
	data, err := p.Patch(node)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := jsonpatch.MergePatch(before, data)
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Node{}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
	return after
}

// recorded is what the record on a node says of one pool, in the JSON that nodes carry.
type recorded struct {
	UID                         types.UID
	Labels, Annotations, Taints map[string]struct {
		V       string
		Was     *string
		Adopted bool
	}
}

func (w *world) recorded(poolName string) (recorded, bool) {
	w.t.Helper()
	var record struct{ Pools map[string]recorded }
	if text := w.node.Annotations[flotillav1.AnnotationNodeRecord]; text != "" {
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			w.t.Fatal(err)
		}
	}
	found, ok := record.Pools[poolName]
	return found, ok
}

// get, put and drop are what others see and do.
func (w *world) get(k ownership.Key) string {
	values := w.node.Labels
	switch k.Kind {
	case ownership.Annotation:
		values = w.node.Annotations
	case ownership.Taint:
		values = map[string]string{}
		for _, t := range w.node.Spec.Taints {
			values[t.Key+":"+string(t.Effect)] = t.Value
		}
		k.Name += ":" + string(k.Effect)
	}
	if value, ok := values[k.Name]; ok {
		return value
	}
	return absent
}

func (w *world) put(k ownership.Key, value string) {
	w.drop(k)
	switch k.Kind {
	case ownership.Label:
		w.node.Labels[k.Name] = value
	case ownership.Annotation:
		if w.node.Annotations == nil {
			w.node.Annotations = map[string]string{}
		}
		w.node.Annotations[k.Name] = value
	case ownership.Taint:
		w.node.Spec.Taints = append(w.node.Spec.Taints, corev1.Taint{Key: k.Name, Value: value, Effect: k.Effect})
	}
}

func (w *world) drop(k ownership.Key) {
	switch k.Kind {
	case ownership.Label:
		delete(w.node.Labels, k.Name)
	case ownership.Annotation:
		delete(w.node.Annotations, k.Name)
	case ownership.Taint:
		w.node.Spec.Taints = slices.DeleteFunc(w.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == k.Name && t.Effect == k.Effect })
	}
}

func (w *world) want(k ownership.Key, value string) {
	w.t.Helper()
	if got := w.get(k); got != value {
		w.t.Fatalf("%s: got %q, want %q", k, got, value)
	}
}

// deletePool is what a person and the pool controller do.
func (w *world) deletePool(name string) {
	w.pools[name].DeletionTimestamp = &ownershiptest.Now
	w.pools[name].Status.Conditions = []metav1.Condition{{Type: flotillav1.ConditionProgressing, Reason: flotillav1.ReasonCleaning}}
}

var (
	labelKey      = ownership.Key{Kind: ownership.Label, Name: "example.com/team"}
	annotationKey = ownership.Key{Kind: ownership.Annotation, Name: "example.com/team"}
	taintKey      = ownership.Key{Kind: ownership.Taint, Name: "example.com/team", Effect: corev1.TaintEffectNoSchedule}
	evictKey      = ownership.Key{Kind: ownership.Taint, Name: "example.com/drain", Effect: corev1.TaintEffectNoExecute}
)

// forEachKind runs the test for a label, an annotation and a taint.
func forEachKind(t *testing.T, test func(t *testing.T, k ownership.Key)) {
	t.Helper()
	for _, k := range []ownership.Key{labelKey, annotationKey, taintKey} {
		t.Run(fmt.Sprint(k.Kind), func(t *testing.T) { test(t, k) })
	}
}
