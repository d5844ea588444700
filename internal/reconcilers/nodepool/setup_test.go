// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// passes reads how many passes the two controllers have made.
func passes(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.Gatherers{ctrlmetrics.Registry}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var total float64
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			total += metric.GetCounter().GetValue()
		}
	}
	return total
}

// resting waits until no pass is due any more and returns how many there were. A pass that was put off by pendingInterval is
// made even if an event has led to another one since.
func resting(t *testing.T) float64 {
	t.Helper()
	var made float64
	NewWithT(t).Eventually(func(g Gomega) {
		made = passes(t)
		g.Consistently(func() float64 { return passes(t) }).WithTimeout(pendingInterval + time.Second).WithPolling(100 * time.Millisecond).Should(Equal(made))
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	return made
}

// statusWrites is how many writes of its status a pool may take that comes to rest in this time: the passes that count
// nodes are passInterval apart.
func statusWrites(took time.Duration) int { return 2 + int(took/passInterval) }

// run starts both controllers in a manager and engages the harness's member.
func (h *harness) run() {
	h.t.Helper()
	mgr, err := mcmanager.New(shared.Config, nil, manager.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := Setup(mgr, h.members, h, clock.RealClock{}, 4); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("the manager ended with an error: %v", err)
		}
	})
	if err := mgr.Engage(ctx, memberName, h.member); err != nil {
		h.t.Fatal(err)
	}
}

func TestSetup_changes_reach_nodes_and_heartbeats_cost_nothing(t *testing.T) {
	const nodes = 40
	g := NewWithT(t)
	ctx := context.Background()
	h := newHarness(t, shared)
	names := make([]string, 0, nodes)
	for i := range nodes {
		names = append(names, fmt.Sprintf("wired-%02d", i))
	}
	h.newNodes("wired", names...)
	h.run()
	eventually := func(check func(g Gomega)) {
		t.Helper()
		g.Eventually(check).WithPolling(50 * time.Millisecond).Should(Succeed())
	}
	applied := func(g Gomega) {
		pool := h.pool("wired")
		g.Expect(pool.Status.ObservedGeneration).To(Equal(pool.Generation))
		g.Expect(pool.Status.Status).To(Equal(int32(statusApplied)))
		g.Expect(pool.Status.UpdatedNodes).To(Equal(int32(nodes)))
	}

	pool, began := selecting("wired", everything), time.Now()
	h.create(pool)
	eventually(applied)
	g.Expect(h.wire.count("PATCH /api/v1/nodes/")).To(Equal(nodes), "patches at creation")
	g.Expect(h.wire.count("nodepools/wired/status")).To(BeNumerically("<=", max(5, statusWrites(time.Since(began)))), "status writes at creation")

	h.update(pool, func() { pool.Spec.Labels[labelKey.Name] = "changed" })
	eventually(applied)
	g.Expect(h.wire.count("PATCH /api/v1/nodes/")).To(Equal(2*nodes), "patches after a change of one label")

	idle := resting(t)
	writes := h.wire.count("")
	for _, name := range names {
		node := h.node(name)
		node.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Hour))
		g.Expect(h.api.Status().Update(ctx, node)).To(Succeed())
		h.cached(node)
		node.Annotations["agent.example.com/seen"] = "now"
		g.Expect(h.api.Update(ctx, node)).To(Succeed())
		h.cached(node)
	}
	g.Consistently(func() float64 { return passes(t) }).WithTimeout(time.Second).WithPolling(100 * time.Millisecond).Should(Equal(idle))
	g.Expect(h.wire.count("")).To(Equal(writes), "writes after heartbeats")

	// What people do by hand wakes the controllers.
	node := h.node(names[0])
	h.update(node, func() { delete(node.Annotations, annotationKey.Name) })
	h.delete(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "node-pool-wired"}})
	node = h.node(names[1])
	h.update(node, func() { node.Spec.Unschedulable = true })
	eventually(func(g Gomega) {
		g.Expect(h.node(names[0]).Annotations).To(HaveKey(annotationKey.Name))
		g.Expect(h.api.Get(ctx, client.ObjectKey{Name: "node-pool-wired"}, &nodev1.RuntimeClass{})).To(Succeed())
		g.Expect(h.pool("wired").Status.UnschedulableNodes).To(Equal(int32(1)))
	})

	g.Expect(h.api.Delete(ctx, pool)).To(Succeed())
	eventually(func(g Gomega) {
		g.Expect(client.IgnoreNotFound(h.api.Get(ctx, client.ObjectKeyFromObject(pool), &flotillav1.NodePool{}))).To(Succeed())
		g.Expect(h.api.Get(ctx, client.ObjectKeyFromObject(pool), &flotillav1.NodePool{})).NotTo(Succeed())
	})
	for _, name := range names {
		g.Expect(h.node(name).Spec.Taints).To(BeEmpty())
		g.Expect(h.node(name).Annotations).NotTo(HaveKey(flotillav1.AnnotationNodeRecord))
	}
}

func TestSetup_no_execute_needs_no_timer(t *testing.T) {
	h := newHarness(t, shared)
	names := []string{"turn-1", "turn-2", "turn-3", "turn-4", "turn-5", "turn-6"}
	h.newNodes("turn", names...)
	h.run()
	h.create(selecting("turn", func(spec *flotillav1.NodePoolSpec) {
		ownershiptest.Wants(evictKey, "x")(spec)
		spec.Rollout = &flotillav1.NodePoolRollout{MinReadySeconds: new(int32(0))}
	}))
	// Waiting nodes ask every turnInterval; six in a row within one show that they are woken.
	NewWithT(t).Eventually(func(g Gomega) {
		for _, name := range names {
			g.Expect(h.node(name).Spec.Taints).To(ContainElement(HaveField("Effect", corev1.TaintEffectNoExecute)))
		}
	}).WithTimeout(turnInterval - time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
}
