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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// amounts reads "cpu=1 memory=2Gi".
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for pair := range strings.FieldsSeq(text) {
		name, quantity, _ := strings.Cut(pair, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

func asking(text string) corev1.Container {
	return corev1.Container{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: amounts(text)}}
}

func TestRequestsOf(t *testing.T) {
	sidecar := asking("cpu=200m")
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	tests := map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"nothing asked for":  {spec: corev1.PodSpec{Containers: []corev1.Container{asking("")}}, want: "pods=1"},
		"containers add up":  {spec: corev1.PodSpec{Containers: []corev1.Container{asking("cpu=1 memory=1Gi"), asking("cpu=500m example.com/gpu=2")}}, want: "cpu=1500m memory=1Gi example.com/gpu=2 pods=1"},
		"a small init":       {spec: corev1.PodSpec{Containers: []corev1.Container{asking("cpu=1")}, InitContainers: []corev1.Container{asking("cpu=900m")}}, want: "cpu=1 pods=1"},
		"the largest init":   {spec: corev1.PodSpec{Containers: []corev1.Container{asking("cpu=1")}, InitContainers: []corev1.Container{asking("cpu=3"), asking("cpu=2 memory=1Gi")}}, want: "cpu=3 memory=1Gi pods=1"},
		"a sidecar":          {spec: corev1.PodSpec{Containers: []corev1.Container{asking("cpu=1")}, InitContainers: []corev1.Container{sidecar}}, want: "cpu=1200m pods=1"},
		"init after sidecar": {spec: corev1.PodSpec{Containers: []corev1.Container{asking("cpu=1")}, InitContainers: []corev1.Container{sidecar, asking("cpu=2")}}, want: "cpu=2200m pods=1"},
		"init then sidecar":  {spec: corev1.PodSpec{Containers: []corev1.Container{asking("cpu=1")}, InitContainers: []corev1.Container{asking("cpu=2"), sidecar}}, want: "cpu=2 pods=1"},
		"overhead":           {spec: corev1.PodSpec{Containers: []corev1.Container{asking("cpu=1")}, Overhead: amounts("cpu=250m")}, want: "cpu=1250m pods=1"},
		"set for the Pod": {spec: corev1.PodSpec{
			Containers: []corev1.Container{asking("cpu=1 memory=1Gi")}, Resources: &corev1.ResourceRequirements{Requests: amounts("cpu=4")},
		}, want: "cpu=4 memory=1Gi pods=1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(amounts(tc.want), requestsOf(&tc.spec)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettled(t *testing.T) {
	const allocatable = "cpu=100 memory=100Gi"
	tests := map[string]struct{ before, measured, want string }{
		"the first time":             {measured: "cpu=1", want: "cpu=1"},
		"the same":                   {before: "cpu=10", measured: "cpu=10", want: "cpu=10"},
		"less than a percent":        {before: "cpu=10", measured: "cpu=10900m", want: "cpu=10"},
		"less than a percent down":   {before: "cpu=10", measured: "cpu=9100m", want: "cpu=10"},
		"a percent":                  {before: "cpu=10", measured: "cpu=11", want: "cpu=11"},
		"of one of two":              {before: "cpu=10 memory=10Gi", measured: "cpu=10100m memory=12Gi", want: "cpu=10100m memory=12Gi"},
		"down to nothing":            {before: "cpu=500m", measured: "cpu=0", want: "cpu=0"},
		"up from nothing":            {before: "cpu=0", measured: "cpu=1m", want: "cpu=1m"},
		"another resource":           {before: "cpu=10", measured: "cpu=10 pods=1", want: "cpu=10 pods=1"},
		"one that no node offers":    {before: "cpu=10 example.com/x=1", measured: "cpu=10 example.com/x=2", want: "cpu=10 example.com/x=2"},
		"the same that none offers":  {before: "cpu=10 example.com/x=1", measured: "cpu=10 example.com/x=1", want: "cpu=10 example.com/x=1"},
		"another name of the number": {before: "cpu=10 a.b/x=1", measured: "cpu=10 a.b/y=1", want: "cpu=10 a.b/y=1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(amounts(tc.want), settled(amounts(tc.before), amounts(tc.measured), amounts(allocatable))); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLedger_one_reads_the_Pods_at_a_time(t *testing.T) {
	l, now := &Ledger{}, testNow.Time
	if _, claimed := l.claimUsage(memberName, now); !claimed {
		t.Fatal("nobody reads")
	}
	if _, claimed := l.claimUsage(memberName, now); claimed {
		t.Error("two read at once")
	}
	l.setUsage(memberName, usage{at: now, why: failure{flotillav1.ReasonForbidden, "no"}})
	if known, claimed := l.claimUsage(memberName, now.Add(usageInterval-1)); claimed || known.why.message != "no" {
		t.Errorf("read again too early: %+v", known)
	}
	if _, claimed := l.claimUsage(memberName, now.Add(usageInterval)); !claimed {
		t.Error("not read again")
	}
	l.setUsage(memberName, usage{at: now})
	l.forgetCluster(memberName)
	if len(l.usages)+len(l.reading) != 0 {
		t.Errorf("something is kept of an offboarded member: %+v", l)
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
			NodeName: node, Containers: []corev1.Container{asking(asks)}, AutomountServiceAccountToken: new(false),
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
			g.Expect(cmp.Diff(amounts(requested), status.Requested)).To(BeEmpty())
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
