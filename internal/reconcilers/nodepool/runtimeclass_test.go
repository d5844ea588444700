// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func TestRuntimeClassFor_tolerates_what_keeps_others_away(t *testing.T) {
	pool := ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) {
		ownershiptest.Wants(taintKey, "x")(spec)
		once := flotillav1.TaintPropagationOnInitialization
		spec.Taints = append(spec.Taints,
			flotillav1.NodePoolTaint{Key: evictKey.Name, Value: "not-ready", Effect: evictKey.Effect, Propagation: once},
			flotillav1.NodePoolTaint{Key: "example.com/boot", Value: "not-ready", Effect: corev1.TaintEffectNoSchedule, Propagation: once},
			flotillav1.NodePoolTaint{Key: "example.com/rather-not", Effect: corev1.TaintEffectPreferNoSchedule},
		)
	})
	want := []corev1.Toleration{{Key: taintKey.Name, Operator: corev1.TolerationOpEqual, Value: "x", Effect: taintKey.Effect}}
	if diff := cmp.Diff(want, runtimeClassFor(pool, "").Scheduling.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
}

func TestReconcile_runtime_class_takes_the_value_of_the_role_label(t *testing.T) {
	role := flotillav1.NodeRolePrefix + "roled"
	h := newHarness(t, shared)
	for _, name := range []string{"roled-1", "roled-2"} {
		h.cached(shared.Node(t, name, map[string]string{role: "true"}))
	}
	pool := selecting("roled", nil)
	pool.Spec.NodeSelector, pool.Spec.Handler = nil, "runc"
	h.create(pool)
	selects := func(g Gomega, value string, status metav1.ConditionStatus, reason string) {
		class := &nodev1.RuntimeClass{}
		h.get(flotillav1.RuntimeClassPrefix+"roled", class)
		g.Expect(class.Scheduling.NodeSelector).To(Equal(map[string]string{role: value}))
		ready := condition(h.pool("roled"), flotillav1.ConditionRuntimeClassReady)
		g.Expect(ready.Status).To(Equal(status), ready.Message)
		g.Expect(ready.Reason).To(Equal(reason))
	}
	h.applied("roled", 2)
	h.until("roled", func(g Gomega) { selects(g, "true", metav1.ConditionTrue, flotillav1.ReasonRuntimeClassApplied) })
	h.quiet("roled")

	// A node of another kind makes the pool say so, and changes nothing for the Pods of the others.
	odd := shared.Node(t, "roled-3", map[string]string{role: ""})
	h.cached(odd)
	h.until("roled", func(g Gomega) {
		selects(g, "true", metav1.ConditionFalse, flotillav1.ReasonSelectorNotExact)
		pool := h.pool("roled")
		g.Expect(condition(pool, flotillav1.ConditionReady).Reason).To(Equal(flotillav1.ReasonSelectorNotExact))
		g.Expect(condition(pool, flotillav1.ConditionRuntimeClassReady).Message).To(Equal(`Label ` + role + ` has different values on nodes of the pool ("", "true"), ` +
			`and RuntimeClass node-pool-roled selects "true" only: give the label the same value on all of them`))
		g.Expect(pool.Status.Status).To(Equal(int32(statusConflict)))
	})
	h.quiet("roled")

	// Most nodes change: the class follows when they agree.
	for _, name := range []string{"roled-1", "roled-2"} {
		node := h.node(name)
		h.update(node, func() { node.Labels[role] = "" })
	}
	h.until("roled", func(g Gomega) { selects(g, "", metav1.ConditionTrue, flotillav1.ReasonRuntimeClassApplied) })

	// An emptied pool keeps the value, for the nodes that an autoscaler brings.
	for _, name := range []string{"roled-1", "roled-2", "roled-3"} {
		node := h.node(name)
		h.update(node, func() { node.Labels[role] = "last" })
	}
	h.until("roled", func(g Gomega) { selects(g, "last", metav1.ConditionTrue, flotillav1.ReasonRuntimeClassApplied) })
	for _, name := range []string{"roled-1", "roled-2", "roled-3"} {
		node := h.node(name)
		h.update(node, func() { delete(node.Labels, role) })
	}
	h.applied("roled", 0)
	h.until("roled", func(g Gomega) { selects(g, "last", metav1.ConditionTrue, flotillav1.ReasonRuntimeClassApplied) })
	if got := h.reasons("roled"); !cmp.Equal(got[len(got)-1], "SelectorNotExact") {
		t.Errorf("events: got %v", got)
	}
}

func TestRuntimeClass_of_a_pool_older_than_the_rules_selects_no_other_nodes(t *testing.T) {
	pool := ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) {
		spec.Handler = "runc"
		spec.NodeSelector = &flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{Key: "zone", Operator: metav1.LabelSelectorOpExists}}}
	})
	// Without a client, every call to the API server would panic.
	got := ensureRuntimeClass(t.Context(), nil, pool, nil).condition
	if got.Status != metav1.ConditionFalse || got.Reason != flotillav1.ReasonSelectorNotExact {
		t.Errorf("got %+v", got)
	}
	if class := runtimeClassFor(ownershiptest.Pool("b", nil), ""); !maps.Equal(class.Scheduling.NodeSelector, map[string]string{"zone": "a"}) {
		t.Errorf("got %v", class.Scheduling.NodeSelector)
	}
}
