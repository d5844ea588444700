// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// valued gives everything of a pool one value.
func valued(value string) func(*flotillav1.NodePoolSpec) {
	return func(spec *flotillav1.NodePoolSpec) {
		ownershiptest.Wants(labelKey, value)(spec)
		ownershiptest.Wants(annotationKey, value)(spec)
		ownershiptest.Wants(taintKey, value)(spec)
	}
}

// valuesOf are what the keys of a valued pool have become on a node.
func (h *harness) valuesOf(name string) []string {
	h.t.Helper()
	node := h.node(name)
	values := []string{absent, absent, absent}
	if value, ok := node.Labels[labelKey.Name]; ok {
		values[0] = value
	}
	if value, ok := node.Annotations[annotationKey.Name]; ok {
		values[1] = value
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == taintKey.Name && taint.Effect == taintKey.Effect {
			values[2] = taint.Value
		}
	}
	return values
}

// become makes rounds over all pools until the keys of the node have the value.
func (h *harness) become(name, value string, poolNames ...string) {
	h.t.Helper()
	NewWithT(h.t).Eventually(func(g Gomega) {
		_ = h.round(poolNames...)
		g.Expect(h.valuesOf(name)).To(Equal([]string{value, value, value}))
	}).WithPolling(20 * time.Millisecond).Should(Succeed())
}

func TestReconcile_node_moves_between_pools(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("none", "mover-1")
	before := h.node("mover-1")
	pools := []string{"from", "to"}
	for _, name := range pools {
		h.create(selecting(name, valued(name)))
		h.applied(name, 0)
	}
	join := func(pool string) {
		t.Helper()
		node := h.node("mover-1")
		h.update(node, func() { node.Labels["flotilla.test/pool"] = pool })
	}
	join("from")
	h.become("mover-1", "from", pools...)
	patches := h.wire.count("PATCH /api/v1/nodes/mover-1")
	join("to")
	h.become("mover-1", "to", pools...)
	// A pool that had no node first needs the right to write to one, so that leaving may come before joining.
	if n := h.wire.count("PATCH /api/v1/nodes/mover-1") - patches; n > 2 {
		t.Errorf("moving took %d patches, want at most 2", n)
	}
	h.applied("from", 0)
	h.applied("to", 1)
	for pool, reasons := range map[string][]string{"from": {"NodeJoined", "NodeLeft"}, "to": {"NodeJoined"}} {
		if diff := cmp.Diff(reasons, h.reasons(pool)); diff != "" {
			t.Errorf("events of %s (-want +got):\n%s", pool, diff)
		}
	}
	// Now the pool goes away from the node: its selector changes.
	to := h.pool("to")
	h.update(to, func() { to.Spec.NodeSelector.MatchLabels["flotilla.test/pool"] = "elsewhere" })
	h.become("mover-1", absent, pools...)
	join("none")
	after := h.node("mover-1")
	if !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) || len(after.Spec.Taints) > 0 {
		t.Errorf("the node is not as before: %v %v %v", after.Labels, after.Annotations, after.Spec.Taints)
	}
}

func TestReconcile_node_that_is_gone_holds_no_pool(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("lost", "lost-1", "lost-2")
	h.create(selecting("lost", everything))
	h.applied("lost", 2)
	h.delete(h.node("lost-1"))
	h.delete(h.pool("lost"))
	h.until("lost", func(g Gomega) {
		err := h.api.Get(context.Background(), client.ObjectKey{Name: "lost"}, &flotillav1.NodePool{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})
	if got := h.valuesOf("lost-2"); !slices.Equal(got, []string{absent, absent, absent}) {
		t.Errorf("the node that is left was not cleaned: %v", got)
	}
}

func TestReconcile_role_label_is_matched_whole(t *testing.T) {
	h := newHarness(t, shared)
	for name, role := range map[string]string{"role-1": "edge", "role-2": "edge-2", "role-3": "my-edge"} {
		h.cached(shared.Node(t, name, map[string]string{flotillav1.NodeRolePrefix + role: ""}))
	}
	pool := selecting("edge", valued("edge"))
	pool.Spec.NodeSelector = nil
	h.create(pool)
	h.applied("edge", 1)
	for name, want := range map[string]string{"role-1": "edge", "role-2": absent, "role-3": absent} {
		if got := h.valuesOf(name); !slices.Equal(got, []string{want, want, want}) {
			t.Errorf("%s: got %v, want %s", name, got, want)
		}
	}
}

func TestReconcile_control_plane_nodes_are_left_alone(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("guard", "guard-1")
	h.cached(shared.Node(t, "guard-2", map[string]string{"flotilla.test/pool": "guard", flotillav1.NodeRolePrefix + "control-plane": ""}))
	h.create(selecting("guard", valued("guard")))
	h.applied("guard", 1)
	if n := h.wire.count("/nodes/guard-2"); n != 0 {
		t.Errorf("a control-plane node took %d writes", n)
	}
	pool := h.pool("guard")
	h.update(pool, func() { pool.Spec.AllowControlPlane = true })
	h.applied("guard", 2)
	h.become("guard-2", "guard", "guard")
	h.update(pool, func() { pool.Spec.AllowControlPlane = false })
	h.applied("guard", 1)
	h.become("guard-2", absent, "guard")
	// A node that becomes one of the control plane is let go of.
	node := h.node("guard-1")
	h.update(node, func() { node.Labels[flotillav1.NodeRolePrefix+"control-plane"] = "" })
	h.become("guard-1", absent, "guard")
	h.applied("guard", 0)
}

func TestReconcile_runtime_class_selects_the_nodes_of_the_pool(t *testing.T) {
	h := newHarness(t, shared)
	pool := selecting("chosen", nil)
	pool.Spec.NodeSelector, pool.Spec.Handler = nil, "runc"
	h.create(pool)
	h.applied("chosen", 0)
	class := &nodev1.RuntimeClass{}
	h.get(flotillav1.RuntimeClassPrefix+"chosen", class)
	want := map[string]string{flotillav1.NodeRolePrefix + "chosen": ""}
	if class.Scheduling == nil || !maps.Equal(class.Scheduling.NodeSelector, want) {
		t.Errorf("a pool without labels: got %+v", class.Scheduling)
	}
	if !metav1.IsControlledBy(class, h.pool("chosen")) {
		t.Errorf("owners: %v", class.OwnerReferences)
	}
}

func TestReconcile_pools_that_feed_on_each_other(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("loop", "loop-1")
	scoped := func(name string, operator metav1.LabelSelectorOperator, label string, set string) *flotillav1.NodePool {
		pool := ownershiptest.Pool(name, func(spec *flotillav1.NodePoolSpec) {
			spec.Labels = map[string]flotillav1.LabelValue{"example.com/" + set: "yes"}
		})
		pool.Spec.NodeSelector = &flotillav1.NodeSelector{
			MatchLabels:      map[string]flotillav1.LabelValue{"flotilla.test/pool": "loop"},
			MatchExpressions: []flotillav1.NodeSelectorRequirement{{Key: "example.com/" + label, Operator: operator}},
		}
		return pool
	}
	taker := scoped("loop-b", metav1.LabelSelectorOpExists, "free", "claimed")
	taker.Spec.Taints = []flotillav1.NodePoolTaint{{Key: evictKey.Name, Effect: evictKey.Effect}}
	h.create(scoped("loop-a", metav1.LabelSelectorOpDoesNotExist, "claimed", "free"))
	h.create(taker)
	pools := []string{"loop-a", "loop-b"}
	loops := func(g Gomega) {
		for _, name := range pools {
			applied := condition(h.pool(name), flotillav1.ConditionApplied)
			g.Expect(applied.Reason).To(Equal(flotillav1.ReasonMembershipLoop), applied.Message)
			g.Expect(applied.Message).To(ContainSubstring("pools loop-a, loop-b make loop-1 join and leave for ever"))
			g.Expect(h.pool(name).Status.Status).To(Equal(int32(statusConflict)))
		}
	}
	eventually := func(check func(g Gomega)) {
		t.Helper()
		NewWithT(t).Eventually(func(g Gomega) {
			_ = h.round(pools...)
			check(g)
		}).WithTimeout(20 * time.Second).WithPolling(20 * time.Millisecond).Should(Succeed())
	}
	eventually(loops)
	patches := h.wire.count("PATCH /api/v1/nodes/loop-1")
	if patches > 2 {
		t.Errorf("%d patches until the loop was found", patches)
	}
	// Neither time nor a restart of the manager makes it go on.
	h.clock.SetTime(h.clock.Now().Add(2 * fightWindow))
	h.ledger = NewLedger()
	h.nodes.Ledger, h.pools.Ledger = h.ledger, h.ledger
	for range 5 {
		if err := h.round(pools...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(loops)
	if n := h.wire.count("PATCH /api/v1/nodes/loop-1"); n != patches {
		t.Errorf("%d patches after a restart", n-patches)
	}
	if taints := h.node("loop-1").Spec.Taints; len(taints) > 0 {
		t.Errorf("Pods were evicted: %v", taints)
	}
	// A person changes a pool.
	a := h.pool("loop-a")
	h.update(a, func() {
		a.Spec.NodeSelector.MatchExpressions = nil
		a.Spec.Labels = map[string]flotillav1.LabelValue{"example.com/free": "yes"}
	})
	eventually(func(g Gomega) {
		for _, name := range pools {
			pool := h.pool(name)
			g.Expect(pool.Status.ObservedGeneration).To(Equal(pool.Generation))
			g.Expect(pool.Status.Status).To(Equal(int32(statusApplied)), "%+v", pool.Status.Conditions)
			g.Expect(pool.Status.UpdatedNodes).To(Equal(int32(1)))
		}
	})
}
