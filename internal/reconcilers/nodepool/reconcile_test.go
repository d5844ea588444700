// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func mustGVK(obj client.Object) schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(obj, testenv.Scheme())
	if err != nil {
		panic(err)
	}
	return gvk
}

// selecting returns a pool of the nodes with label flotilla.test/pool=<name>.
func selecting(name string, change func(*flotillav1.NodePoolSpec)) *flotillav1.NodePool {
	pool := ownershiptest.Pool(name, change)
	pool.Spec.NodeSelector = &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"flotilla.test/pool": flotillav1.LabelValue(name)}}
	return pool
}

func (h *harness) newNodes(poolName string, names ...string) {
	h.t.Helper()
	for _, name := range names {
		h.cached(shared.Node(h.t, name, map[string]string{"flotilla.test/pool": poolName}))
	}
}

func everything(spec *flotillav1.NodePoolSpec) {
	spec.Labels = map[string]flotillav1.LabelValue{labelKey.Name: "x"}
	spec.Annotations = map[string]flotillav1.AnnotationValue{annotationKey.Name: "y"}
	spec.Taints = []flotillav1.NodePoolTaint{{Key: taintKey.Name, Value: "z", Effect: taintKey.Effect}}
	spec.Handler = "runc"
}

func TestReconcile_from_creation_to_deletion(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("life", "life-1", "life-2", "life-3")
	h.create(selecting("life", everything))
	pool := h.applied("life", 3)

	for _, name := range []string{"life-1", "life-2", "life-3"} {
		node := h.node(name)
		if node.Labels[labelKey.Name] != "x" || node.Annotations[annotationKey.Name] != "y" || len(node.Spec.Taints) != 1 {
			t.Errorf("node %s does not carry the keys: %v %v %v", name, node.Labels, node.Annotations, node.Spec.Taints)
		}
		if n := h.wire.count("PATCH /api/v1/nodes/" + name); n != 1 {
			t.Errorf("node %s took %d patches, want 1", name, n)
		}
	}
	class := &nodev1.RuntimeClass{}
	h.get("node-pool-life", class)
	if !metav1.IsControlledBy(class, pool) || class.Handler != "runc" || class.Scheduling.NodeSelector["flotilla.test/pool"] != "life" || len(class.Scheduling.Tolerations) != 1 {
		t.Errorf("RuntimeClass: got %+v", class)
	}
	if got := pool.Status.Allocatable.Cpu().String(); pool.Status.NodeCount != 3 || got != "12" {
		t.Errorf("status: got %d nodes with %s CPUs", pool.Status.NodeCount, got)
	}
	if diff := cmp.Diff([]string{"NodeJoined", "NodeJoined", "NodeJoined", "RuntimeClassCreated"}, h.reasons("life")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	h.quiet("life")

	h.delete(pool)
	h.until("life", func(g Gomega) {
		err := h.api.Get(context.Background(), client.ObjectKey{Name: "life"}, &flotillav1.NodePool{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})
	for _, name := range []string{"life-1", "life-2", "life-3"} {
		node := h.node(name)
		if _, ok := node.Labels[labelKey.Name]; ok || len(node.Annotations) > 0 || len(node.Spec.Taints) > 0 {
			t.Errorf("node %s is not as it was: %v %v %v", name, node.Labels, node.Annotations, node.Spec.Taints)
		}
		if n := h.wire.count("PATCH /api/v1/nodes/" + name); n != 2 {
			t.Errorf("node %s took %d patches, want 2", name, n)
		}
	}
}

func TestReconcile_heals_nodes(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("heal", "heal-1", "heal-2")
	h.create(selecting("heal", everything))
	h.applied("heal", 2)

	node := h.node("heal-1")
	h.update(node, func() { delete(node.Labels, labelKey.Name); node.Spec.Taints = nil })
	h.until("heal", func(g Gomega) {
		g.Expect(h.node("heal-1").Labels).To(HaveKeyWithValue(labelKey.Name, "x"))
		g.Expect(h.node("heal-1").Spec.Taints).To(HaveLen(1))
	})

	// A node that leaves is made as it was.
	node = h.node("heal-2")
	h.update(node, func() { delete(node.Labels, "flotilla.test/pool") })
	h.applied("heal", 1)
	if node := h.node("heal-2"); len(node.Annotations) > 0 || len(node.Spec.Taints) > 0 {
		t.Errorf("node heal-2 is not as it was: %v %v", node.Annotations, node.Spec.Taints)
	}
	if got := strings.Join(h.reasons("heal"), " "); !strings.Contains(got, "NodeLeft") {
		t.Errorf("events: got %s", got)
	}

	// The finalizer goes with the last node.
	node = h.node("heal-1")
	h.update(node, func() { delete(node.Labels, "flotilla.test/pool") })
	h.until("heal", func(g Gomega) { g.Expect(h.pool("heal").Finalizers).To(BeEmpty()) })
	pool := h.applied("heal", 0)
	if got := condition(pool, flotillav1.ConditionReady); got.Status != metav1.ConditionTrue || got.Reason != flotillav1.ReasonNoMatchingNodes {
		t.Errorf("Ready of an emptied pool: got %+v", got)
	}
}

func TestReconcile_fight_stops(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("fight", "fight-1")
	h.create(selecting("fight", everything))
	h.applied("fight", 1)
	for range fightLimit {
		node := h.node("fight-1")
		h.update(node, func() { node.Labels[labelKey.Name] = "theirs" })
		h.until("fight", func(g Gomega) { g.Expect(h.node("fight-1").Labels).To(HaveKeyWithValue(labelKey.Name, "x")) })
		h.cached(h.node("fight-1"))
	}
	node := h.node("fight-1")
	h.update(node, func() { node.Labels[labelKey.Name] = "theirs" })
	h.until("fight", func(g Gomega) {
		pool := h.pool("fight")
		g.Expect(condition(pool, flotillav1.ConditionApplied).Reason).To(Equal(flotillav1.ReasonOwnershipFight))
		g.Expect(pool.Status.Status).To(Equal(int32(statusConflict)))
	})
	if got := h.node("fight-1").Labels[labelKey.Name]; got != "theirs" {
		t.Errorf("the fight goes on: %s", got)
	}
	if got := strings.Join(h.reasons("fight"), " "); !strings.Contains(got, "OwnershipFight") {
		t.Errorf("events: got %s", got)
	}
	// Later it is tried again.
	h.clock.SetTime(h.clock.Now().Add(fightWindow))
	h.applied("fight", 1)
}

func TestReconcile_lost_race_keeps_the_other_writers_taint(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("race", "race-1")
	h.create(selecting("race", everything))
	raced := false
	h.wire.intercept(func(write string) *http.Response {
		if !raced && strings.HasPrefix(write, "PATCH /api/v1/nodes/race-1") {
			raced = true
			node := h.node("race-1")
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "foreign", Value: "1", Effect: corev1.TaintEffectNoSchedule})
			if err := h.api.Update(context.Background(), node); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	h.applied("race", 1)
	want := []corev1.Taint{
		{Key: "foreign", Value: "1", Effect: corev1.TaintEffectNoSchedule},
		{Key: taintKey.Name, Value: "z", Effect: taintKey.Effect},
	}
	if diff := cmp.Diff(want, h.node("race-1").Spec.Taints); diff != "" || !raced {
		t.Errorf("taints (-want +got), raced %t:\n%s", raced, diff)
	}
}

func TestReconcile_refused_patches_are_told(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("denied", "denied-1")
	h.create(selecting("denied", everything))
	h.wire.intercept(func(write string) *http.Response {
		if strings.HasPrefix(write, "PATCH /api/v1/nodes/") {
			return forbidden()
		}
		return nil
	})
	h.until("denied", func(g Gomega) {
		pool := h.pool("denied")
		g.Expect(pool.Status.Status).To(Equal(int32(statusFailed)))
		g.Expect(condition(pool, flotillav1.ConditionReady).Message).To(Equal("Nodes cannot be patched (denied-1): no rights on nodes"))
	})
	h.wire.intercept(nil)
	h.applied("denied", 1)
}

func TestReconcile_patches_without_an_answer_are_told(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("late", "unanswered-1")
	h.create(selecting("late", everything))
	h.wire.intercept(func(write string) *http.Response {
		if strings.HasPrefix(write, "PATCH /api/v1/nodes/") {
			return unanswered
		}
		return nil
	})
	h.until("late", func(g Gomega) {
		pool := h.pool("late")
		g.Expect(pool.Status.Status).To(Equal(int32(statusFailed)))
		g.Expect(condition(pool, flotillav1.ConditionReady).Message).To(ContainSubstring("Nodes cannot be patched (unanswered-1)"))
	})
	h.wire.intercept(nil)
	h.applied("late", 1)
}

func TestReconcile_runtime_class(t *testing.T) {
	ctx := context.Background()
	h := newHarness(t, shared)
	h.create(selecting("class", everything))
	h.applied("class", 0)
	class := &nodev1.RuntimeClass{}
	h.get("node-pool-class", class)
	h.cached(class)

	// Deleted by hand, it comes back.
	h.delete(class)
	h.until("class", func(g Gomega) {
		g.Expect(h.api.Get(ctx, client.ObjectKey{Name: "node-pool-class"}, &nodev1.RuntimeClass{})).To(Succeed())
	})
	h.applied("class", 0)

	// Changed by hand, it is put back.
	h.get("node-pool-class", class)
	h.update(class, func() { class.Scheduling.NodeSelector["other"] = "x" })
	h.until("class", func(g Gomega) {
		h.get("node-pool-class", class)
		g.Expect(class.Scheduling.NodeSelector).To(Equal(map[string]string{"flotilla.test/pool": "class"}))
	})
	h.quiet("class")

	// The handler is immutable.
	before := class.UID
	pool := h.pool("class")
	h.update(pool, func() { pool.Spec.Handler = "gvisor" })
	h.until("class", func(g Gomega) {
		h.get("node-pool-class", class)
		g.Expect(class.Handler).To(Equal("gvisor"))
		g.Expect(class.UID).NotTo(Equal(before))
	})
	h.cached(class)

	pool = h.pool("class")
	h.update(pool, func() { pool.Spec.Handler = "" })
	h.until("class", func(g Gomega) {
		err := h.api.Get(ctx, client.ObjectKey{Name: "node-pool-class"}, &nodev1.RuntimeClass{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})
	want := []string{"RuntimeClassCreated", "RuntimeClassDeleted", "RuntimeClassRecreated", "RuntimeClassRecreated", "RuntimeClassUpdated"}
	if diff := cmp.Diff(want, h.reasons("class")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestReconcile_foreign_runtime_class_is_left_alone(t *testing.T) {
	h := newHarness(t, shared)
	foreign := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "node-pool-foreign"}, Handler: "theirs"}
	if err := h.api.Create(context.Background(), foreign); err != nil {
		t.Fatal(err)
	}
	h.create(selecting("foreign", everything))
	h.until("foreign", func(g Gomega) {
		pool := h.pool("foreign")
		g.Expect(condition(pool, flotillav1.ConditionReady).Reason).To(Equal(flotillav1.ReasonNameConflict))
		g.Expect(pool.Status.Status).To(Equal(int32(statusConflict)))
	})
	h.quiet("foreign")
	after := &nodev1.RuntimeClass{}
	h.get("node-pool-foreign", after)
	if after.ResourceVersion != foreign.ResourceVersion {
		t.Error("a RuntimeClass that is not ours was changed")
	}
}

func TestReconcile_conflict_is_kept_and_told_once(t *testing.T) {
	h := newHarness(t, shared)
	h.cached(shared.Node(t, "conflict-1", map[string]string{"flotilla.test/pool": "conflict", labelKey.Name: "theirs"}))
	h.create(selecting("conflict", everything))
	h.until("conflict", func(g Gomega) {
		pool := h.pool("conflict")
		g.Expect(pool.Status.Status).To(Equal(int32(statusConflict)))
		g.Expect(pool.Status.ConflictingNodes).To(Equal(int32(1)))
		g.Expect(condition(pool, flotillav1.ConditionApplied).Status).To(Equal(metav1.ConditionTrue))
		g.Expect(condition(pool, flotillav1.ConditionReady).Reason).To(Equal(flotillav1.ReasonKeyConflict))
	})
	h.quiet("conflict")
	if got := h.node("conflict-1").Labels[labelKey.Name]; got != "theirs" {
		t.Errorf("the label was overridden: %s", got)
	}
	if diff := cmp.Diff([]string{"KeyConflict", "NodeJoined", "RuntimeClassCreated"}, h.reasons("conflict")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestReconcile_empty_pool_shows_zeros(t *testing.T) {
	h := newHarness(t, shared)
	h.create(selecting("empty", everything))
	h.applied("empty", 0)
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(kindNodePool))
	h.get("empty", raw)
	status, _, _ := unstructured.NestedMap(raw.Object, "status")
	for _, field := range []string{"nodeCount", "readyNodes", "updatedNodes", "unschedulableNodes", "conflictingNodes"} {
		if value, ok := status[field]; !ok || value != int64(0) {
			t.Errorf("status.%s: got %v", field, value)
		}
	}
	if text, _ := json.Marshal(status["allocatable"]); string(text) != `{"cpu":"0","memory":"0"}` {
		t.Errorf("status.allocatable: got %s", text)
	}
	if len(raw.GetFinalizers()) > 0 {
		t.Errorf("an empty pool has finalizers: %v", raw.GetFinalizers())
	}
}

func TestReconcile_dry_run_and_pause_write_nothing(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("dry", "dry-1", "dry-2")
	h.create(selecting("dry", func(spec *flotillav1.NodePoolSpec) { everything(spec); spec.DryRun = true }))
	h.until("dry", func(g Gomega) {
		plan := h.pool("dry").Status.Plan
		g.Expect(plan).NotTo(BeNil())
		g.Expect(plan.Nodes).To(Equal(int32(2)))
		g.Expect(plan.Changes).To(Equal([]string{"add annotation example.com/team", "add label example.com/team", "add taint example.com/team:NoSchedule"}))
	})
	pool := h.pool("dry")
	h.update(pool, func() { pool.Spec.DryRun, pool.Spec.Paused = false, true })
	h.until("dry", func(g Gomega) {
		pool := h.pool("dry")
		g.Expect(pool.Status.Plan).To(BeNil())
		g.Expect(condition(pool, flotillav1.ConditionReady).Reason).To(Equal(flotillav1.ReasonPaused))
	})
	if writes := h.wire.count("/nodes/") + h.wire.count("/runtimeclasses"); writes != 0 || len(h.pool("dry").Finalizers) != 0 {
		t.Errorf("a dry run and a pause made %d writes", writes)
	}
	h.update(pool, func() { pool.Spec.Paused = false })
	h.applied("dry", 2)

	// A paused member gets no writes at all.
	h.members.Change(memberName, func(s *clusters.Snapshot) { s.Paused = true })
	before := h.wire.count("")
	h.update(pool, func() { pool.Spec.Labels[labelKey.Name] = "changed" })
	for range 3 {
		if err := h.round("dry"); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.wire.count("") - before; got != 0 {
		t.Errorf("a paused member got %d writes", got)
	}
}

func TestReconcile_no_execute_goes_node_by_node(t *testing.T) {
	h := newHarness(t, shared)
	names := []string{"evict-1", "evict-2", "evict-3"}
	h.newNodes("evict", names...)
	tainted := func() int {
		n := 0
		for _, name := range names {
			n += len(h.node(name).Spec.Taints)
		}
		return n
	}
	setReady := func(name string, status corev1.ConditionStatus) {
		node := h.node(name)
		node.Status.Conditions[0].Status = status
		if err := h.api.Status().Update(context.Background(), node); err != nil {
			t.Fatal(err)
		}
		h.cached(node)
	}
	setReady("evict-3", corev1.ConditionFalse)
	h.create(selecting("evict", ownershiptest.Wants(evictKey, "x")))
	h.until("evict", func(g Gomega) {
		g.Expect(condition(h.pool("evict"), flotillav1.ConditionReady).Reason).To(Equal(flotillav1.ReasonRolloutHalted))
	})
	if n := tainted(); n != 0 {
		t.Errorf("%d nodes got NoExecute although the rollout is halted", n)
	}
	setReady("evict-3", corev1.ConditionTrue)
	h.applied("evict", 3)
	if n := tainted(); n != 3 {
		t.Errorf("%d of 3 nodes got NoExecute", n)
	}
}

func TestReconcile_no_execute_leaves_evicted_Pods_a_minute(t *testing.T) {
	h := newHarness(t, shared)
	names := []string{"minute-1", "minute-2", "minute-3"}
	h.newNodes("minute", names...)
	h.clock.SetTime(h.clock.Now().Add(time.Hour))
	h.create(selecting("minute", ownershiptest.Wants(evictKey, "x")))
	tainted := func() []string {
		var nodes []string
		for _, name := range names {
			if len(h.node(name).Spec.Taints) > 0 {
				nodes = append(nodes, name)
			}
		}
		return nodes
	}
	var taintedAt time.Time
	for i := range names {
		h.until("minute", func(g Gomega) { g.Expect(tainted()).To(Equal(names[:i+1])) })
		// The API keeps whole seconds.
		if i > 0 && h.clock.Now().Sub(taintedAt) < 59*time.Second {
			t.Errorf("%s got its taint %s after the one before", names[i], h.clock.Now().Sub(taintedAt))
		}
		taintedAt = h.clock.Now()
		for range 5 {
			if err := h.round("minute"); err != nil {
				t.Fatal(err)
			}
		}
		if got := tainted(); len(got) != i+1 {
			t.Fatalf("a few seconds later %s have it", got)
		}
		if i < len(names)-1 {
			result, err := h.nodes.Reconcile(t.Context(), request(memberName, names[i+1]))
			if rest := 60*time.Second - h.clock.Now().Sub(taintedAt); err != nil || result.RequeueAfter > rest+time.Second || result.RequeueAfter < rest-2*time.Second {
				t.Errorf("%s comes back after %s, %v; want about %s", names[i+1], result.RequeueAfter, err, rest)
			}
			h.clock.SetTime(taintedAt.Add(58 * time.Second))
		}
	}
}

func TestReconcile_terminating_crd_releases(t *testing.T) {
	control := testenv.Start(t)
	h := newHarness(t, control)
	h.cached(control.Node(t, "kept-1", map[string]string{"flotilla.test/pool": "kept"}))
	h.create(selecting("kept", everything))
	h.applied("kept", 1)

	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crdName}}
	if err := h.api.Delete(context.Background(), crd); err != nil {
		t.Fatal(err)
	}
	h.until("kept", func(g Gomega) {
		g.Expect(apierrors.IsNotFound(h.api.Get(context.Background(), client.ObjectKeyFromObject(crd), crd))).To(BeTrue())
	})
	node := h.node("kept-1")
	if node.Labels[labelKey.Name] != "x" || len(node.Spec.Taints) != 1 || node.Annotations[flotillav1.AnnotationNodeRecord] == "" {
		t.Errorf("the node lost its keys: %v %v", node.Labels, node.Spec.Taints)
	}
	if got := strings.Join(h.reasons("kept"), " "); !strings.Contains(got, "Released") {
		t.Errorf("events: got %s", got)
	}
}
