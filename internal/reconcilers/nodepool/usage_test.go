// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func TestLedger_one_reads_the_Pods_at_a_time(t *testing.T) {
	l, now := NewLedger().usages, ownershiptest.Now.Time
	if _, claimed := l.claim(memberName, now); !claimed {
		t.Fatal("nobody reads")
	}
	if _, claimed := l.claim(memberName, now); claimed {
		t.Error("two read at once")
	}
	l.set(memberName, ownership.Usage{At: now, Failure: ownership.Failure{Reason: flotillav1.ReasonForbidden, Message: "no"}})
	if known, claimed := l.claim(memberName, now.Add(usageInterval-1)); claimed || known.Failure.Message != "no" {
		t.Errorf("read again too early: %+v", known)
	}
	if _, claimed := l.claim(memberName, now.Add(usageInterval)); !claimed {
		t.Error("not read again")
	}
}

func TestReconcile_requested_is_what_running_Pods_ask_for(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	h := newHarness(t, shared)
	h.newNodes("level", "level-1", "level-2")
	namespace := shared.Namespace(t)
	g.Expect(h.api.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})).To(Succeed())
	start := func(name, node, asks string, phase corev1.PodPhase) {
		t.Helper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{ownershiptest.Requesting(asks)}, AutomountServiceAccountToken: new(false),
		}}
		g.Expect(h.api.Create(ctx, pod)).To(Succeed())
		t.Cleanup(func() { _ = h.api.Delete(ctx, pod) })
		pod.Status.Phase = phase
		g.Expect(h.api.Status().Update(ctx, pod)).To(Succeed())
	}
	start("one", "level-1", "cpu=1 memory=4Gi", corev1.PodRunning)
	start("two", "level-2", "cpu=1 ephemeral-storage=1Gi", corev1.PodPending)
	start("done", "level-2", "cpu=3", corev1.PodSucceeded)
	start("broken", "level-2", "cpu=3", corev1.PodFailed)
	start("waiting", "", "cpu=3", corev1.PodPending)
	start("elsewhere", "another", "cpu=3", corev1.PodRunning)
	h.create(selecting("level", func(spec *flotillav1.NodePoolSpec) {
		everything(spec)
		spec.Reporting = &flotillav1.NodePoolReporting{Requested: true}
	}))
	want := func(requested string, utilization map[corev1.ResourceName]int32) {
		t.Helper()
		h.until("level", func(g Gomega) {
			status := h.pool("level").Status
			g.Expect(cmp.Diff(ownershiptest.Amounts(requested), status.Requested)).To(BeEmpty())
			g.Expect(cmp.Diff(utilization, status.Utilization)).To(BeEmpty())
		})
	}
	want("cpu=2 memory=4Gi pods=2 ephemeral-storage=1Gi", map[corev1.ResourceName]int32{"cpu": 25, "memory": 12, "pods": 0})
	h.applied("level", 2)
	if got := condition(h.pool("level"), flotillav1.ConditionRequestsKnown); got.Status != metav1.ConditionTrue || got.Reason != flotillav1.ReasonMeasured {
		t.Errorf("RequestsKnown: got %+v", got)
	}
	h.quiet("level")

	// A small Pod more does not make status tick; a larger one shows within the interval.
	start("small", "level-1", "cpu=10m", corev1.PodRunning)
	h.clock.SetTime(h.clock.Now().Add(usageInterval))
	h.quiet("level")
	start("large", "level-1", "cpu=2", corev1.PodRunning)
	h.clock.SetTime(h.clock.Now().Add(usageInterval))
	want("cpu=4010m memory=4Gi pods=4 ephemeral-storage=1Gi", map[corev1.ResourceName]int32{"cpu": 50, "memory": 12, "pods": 1})

	// What is not known is said, and the last numbers stay.
	h.wire.interceptReads(func(read string) *http.Response {
		if strings.HasSuffix(read, "/api/v1/pods") {
			return forbidden()
		}
		return nil
	})
	h.clock.SetTime(h.clock.Now().Add(usageInterval))
	h.until("level", func(g Gomega) {
		pool := h.pool("level")
		known := condition(pool, flotillav1.ConditionRequestsKnown)
		g.Expect(known.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(known.Reason).To(Equal(flotillav1.ReasonForbidden))
		g.Expect(pool.Status.Utilization).To(HaveKeyWithValue(corev1.ResourceCPU, int32(50)))
		g.Expect(pool.Status.Status).To(Equal(int32(statusApplied)), "the pool does its job on nodes all the same")
	})
	h.wire.interceptReads(nil)

	// The reads are one per interval, not one per pass.
	reads := h.wire.readCount("/api/v1/pods")
	h.clock.SetTime(h.clock.Now().Add(usageInterval))
	for range 5 {
		g.Expect(h.round("level")).To(Succeed())
	}
	g.Expect(h.wire.readCount("/api/v1/pods") - reads).To(Equal(1))

	pool := h.pool("level")
	h.update(pool, func() { pool.Spec.Reporting = nil })
	h.until("level", func(g Gomega) {
		pool := h.pool("level")
		g.Expect(pool.Status.Requested).To(BeEmpty())
		g.Expect(pool.Status.Utilization).To(BeEmpty())
		g.Expect(condition(pool, flotillav1.ConditionRequestsKnown).Type).To(BeEmpty())
	})
}
