// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

var testNow = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// world is one node and the pools of its member, with the pool controller's part (authority) done by hand.
type world struct {
	t     testing.TB
	node  *corev1.Node
	pools map[string]*flotillav1.NodePool
	// last is the plan of the last settle.
	last plan
	// fought and mayEvict go into each plan.
	fought   func(key) bool
	mayEvict func(*view) bool
}

func newWorld(t testing.TB, pools ...*flotillav1.NodePool) *world {
	t.Helper()
	w := &world{t: t, node: newNode("n1", map[string]string{"zone": "a"}), pools: map[string]*flotillav1.NodePool{}}
	for _, pool := range pools {
		w.pools[pool.Name] = pool
	}
	return w
}

func newNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Labels: maps.Clone(labels)},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// newPool selects zone=a.
func newPool(name string, change func(*flotillav1.NodePoolSpec)) *flotillav1.NodePool {
	pool := &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       flotillav1.NodePoolSpec{NodeSelector: zone("a")},
	}
	if change != nil {
		change(&pool.Spec)
	}
	return pool
}

// zone selects the nodes of a zone. A selector is never changed: another one takes its place.
func zone(name flotillav1.LabelValue) *flotillav1.NodeSelector {
	return &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"zone": name}}
}

// wants returns a change of a spec that sets one key of a kind.
func wants(k key, value string) func(*flotillav1.NodePoolSpec) {
	return func(spec *flotillav1.NodePoolSpec) {
		switch k.kind {
		case kindLabel:
			spec.Labels = map[string]flotillav1.LabelValue{k.name: flotillav1.LabelValue(value)}
		case kindAnnotation:
			spec.Annotations = map[string]flotillav1.AnnotationValue{k.name: flotillav1.AnnotationValue(value)}
		case kindTaint:
			spec.Taints = []flotillav1.NodePoolTaint{{Key: k.name, Value: value, Effect: k.effect}}
		}
	}
}

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
		if !isHeld(pool) {
			pool.Status.OwnedKeys = ownedKeys(pool, sets.New[string]())
		}
	}
}

func (w *world) plan() plan {
	return planNode(input{node: w.node, views: viewsOf(w.list()), now: testNow, fought: w.fought, mayEvict: w.mayEvict})
}

// settle authorises, plans, applies the real patch, and checks that a second plan is empty.
func (w *world) settle() plan {
	w.t.Helper()
	w.authorise()
	return w.apply()
}

func (w *world) apply() plan {
	w.t.Helper()
	w.last = w.plan()
	if !w.last.empty() {
		w.node = patched(w.t, w.node, w.last)
	}
	if again := w.plan(); !again.empty() {
		data, _ := again.patch(w.node)
		w.t.Fatalf("a second plan is not empty: %s", data)
	}
	return w.last
}

func patched(t testing.TB, node *corev1.Node, p plan) *corev1.Node {
	t.Helper()
	data, err := p.patch(node)
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

// get, put and drop are what others see and do.
func (w *world) get(k key) string {
	value, ok := newLiveNode(w.node, testNow).get(k)
	if !ok {
		return "<none>"
	}
	return value
}

func (w *world) put(k key, value string) {
	w.drop(k)
	switch k.kind {
	case kindLabel:
		w.node.Labels[k.name] = value
	case kindAnnotation:
		if w.node.Annotations == nil {
			w.node.Annotations = map[string]string{}
		}
		w.node.Annotations[k.name] = value
	case kindTaint:
		w.node.Spec.Taints = append(w.node.Spec.Taints, corev1.Taint{Key: k.name, Value: value, Effect: k.effect})
	}
}

func (w *world) drop(k key) {
	switch k.kind {
	case kindLabel:
		delete(w.node.Labels, k.name)
	case kindAnnotation:
		delete(w.node.Annotations, k.name)
	case kindTaint:
		w.node.Spec.Taints = slices.DeleteFunc(w.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == k.name && t.Effect == k.effect })
	}
}

func (w *world) want(k key, value string) {
	w.t.Helper()
	if got := w.get(k); got != value {
		w.t.Fatalf("%s: got %q, want %q", k, got, value)
	}
}

// deletePool is what a person and the pool controller do.
func (w *world) deletePool(name string) {
	w.pools[name].DeletionTimestamp = &testNow
	w.pools[name].Status.Conditions = []metav1.Condition{{Type: flotillav1.ConditionProgressing, Reason: flotillav1.ReasonCleaning}}
}

var (
	labelKey      = key{kind: kindLabel, name: "example.com/team"}
	annotationKey = key{kind: kindAnnotation, name: "example.com/team"}
	taintKey      = key{kind: kindTaint, name: "example.com/team", effect: corev1.TaintEffectNoSchedule}
	evictKey      = key{kind: kindTaint, name: "example.com/drain", effect: corev1.TaintEffectNoExecute}
)

// forEachKind runs the test for a label, an annotation and a taint.
func forEachKind(t *testing.T, test func(t *testing.T, k key)) {
	t.Helper()
	for _, k := range []key{labelKey, annotationKey, taintKey} {
		t.Run(fmt.Sprint(k.kind), func(t *testing.T) { test(t, k) })
	}
}
