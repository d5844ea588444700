// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
)

func TestReadFreeze(t *testing.T) {
	eu, us := map[string]string{"region": "eu"}, map[string]string{"region": "us"}
	for name, tc := range map[string]struct {
		data    map[string]string
		absent  bool
		eu, us  bool
		message string
	}{
		"no switch":               {absent: true},
		"no keys":                 {eu: true, us: true, message: "The freeze switch stops all writes; it gives no reason"},
		"a reason":                {data: map[string]string{"reason": "  audit\n of\tFriday\x00 "}, eu: true, us: true, message: "audit of Friday"},
		"a long reason":           {data: map[string]string{"reason": strings.Repeat("é", 300)}, eu: true, us: true, message: strings.Repeat("é", 128)},
		"a selector as text":      {data: map[string]string{"reason": "r", "clusterSelector": "region=eu"}, eu: true, message: "r"},
		"a selector as YAML":      {data: map[string]string{"reason": "r", "clusterSelector": "matchLabels:\n  region: us\n"}, us: true, message: "r"},
		"a selector as JSON":      {data: map[string]string{"reason": "r", "clusterSelector": `{"matchExpressions":[{"key":"region","operator":"NotIn","values":["us"]}]}`}, eu: true, message: "r"},
		"a selector of everybody": {data: map[string]string{"reason": "r", "clusterSelector": "{}"}, eu: true, us: true, message: "r"},
		"a selector with a typo": {
			data: map[string]string{"reason": "r", "clusterSelector": "matchLabel: {region: eu}"}, eu: true, us: true,
			message: "The clusterSelector of the freeze switch is not a label selector, so that every member is frozen: r",
		},
		"an operator that is none": {
			data: map[string]string{"reason": "r", "clusterSelector": `{"matchExpressions":[{"key":"region","operator":"Like"}]}`}, eu: true, us: true,
			message: "The clusterSelector of the freeze switch is not a label selector, so that every member is frozen: r",
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.ConfigMap{Data: tc.data}
			if tc.absent {
				object = nil
			}
			got := readFreeze(object)
			if got.covers(eu) != tc.eu || got.covers(us) != tc.us || got.message != tc.message {
				t.Errorf("eu %t, us %t, %q; want eu %t, us %t, %q", got.covers(eu), got.covers(us), got.message, tc.eu, tc.us, tc.message)
			}
		})
	}
}

func TestIsWrite(t *testing.T) {
	for request, want := range map[string]bool{
		"GET /api/v1/pods":        false,
		"POST /api/v1/namespaces": true,
		"PATCH /api/v1/nodes/n":   true,
		"DELETE /apis/coordination.k8s.io/v1/namespaces/flotilla-system/leases/flotilla-hub": true,
		"PUT /apis/coordination.k8s.io/v1/namespaces/flotilla-system/leases/flotilla-hub":    false,
		"PUT /apis/coordination.k8s.io/v1/namespaces/flotilla-system/leases/other":           true,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":                        false,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews":                            true,
	} {
		method, path, _ := strings.Cut(request, " ")
		req, err := http.NewRequestWithContext(context.Background(), method, "https://member"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isWrite(req); got != want {
			t.Errorf("%s: got %t, want %t", request, got, want)
		}
	}
}

// heldFor says why a write was not sent; empty when it was.
func heldFor(err error) string {
	if held, ok := errors.AsType[*clusters.HeldError](err); ok {
		return held.Reason
	}
	return ""
}

func TestPool_freezes(t *testing.T) {
	ctx := context.Background()
	own, workloads := hubCluster.Namespace(t), memberOne.Namespace(t)
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.Namespace = own })
	secret := f.register("freezes", memberOne.Kubeconfig(), func(s *corev1.Secret) { s.Labels["region"] = "eu" })
	f.Eventually(f.condition("freezes", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Expect(f.condition("freezes", flotillav1.ConditionFrozen)()).To(Equal("none"))
	f.Eventually(func() int { return f.engaged.count("freezes") }).Should(Equal(1))
	member := f.engaged.cluster("freezes")

	// The healer stands for a reconciler that forgets to ask whether it may write.
	heal := func(name string) error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: name, Labels: map[string]string{flotillav1.LabelRedis: "r"}}}
		service.Spec.Ports = []corev1.ServicePort{{Port: 6379}}
		return client.IgnoreAlreadyExists(member.GetClient().Create(ctx, service))
	}
	f.Expect(heal("cache")).To(Succeed())
	recovered := make(chan struct{}, 1)
	member.(*memberCluster).OnRecovered(ctx, func() { signal(recovered) })
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: workloads, Name: "cache"}
	f.Eventually(func() error { return member.GetClient().Get(ctx, key, service) }).Should(Succeed())

	freeze := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: freezeName}, Data: map[string]string{"reason": "audit", "clusterSelector": "region=us"}}
	f.Expect(hubCluster.Client.Create(ctx, freeze)).To(Succeed())
	f.Consistently(func() string { return heldFor(heal("cache")) }, "1s").Should(BeEmpty(), "another region is frozen")
	freeze.Data["clusterSelector"] = "region=eu"
	f.Expect(hubCluster.Client.Update(ctx, freeze)).To(Succeed())
	f.Eventually(func() string { return heldFor(heal("cache")) }).WithPolling(20 * time.Millisecond).Should(Equal("Frozen"))
	f.Eventually(f.condition("freezes", flotillav1.ConditionFrozen)).Should(Equal("True Frozen"))
	s, _ := f.pool.Snapshot("freezes")
	f.Expect(s.Frozen).To(BeTrue())
	f.Expect(s.Writable()).To(BeFalse())
	f.Expect(s.Visible()).To(BeTrue())

	f.Expect(memberOne.Client.Delete(ctx, service)).To(Succeed())
	f.Eventually(func() bool { return apierrors.IsNotFound(member.GetClient().Get(ctx, key, service)) }).Should(BeTrue(), "observing goes on")
	f.Expect(heldFor(heal("cache"))).To(Equal("Frozen"))
	f.Expect(heldFor(member.GetClient().DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace(workloads)))).To(Equal("Frozen"))
	f.Expect(heldFor(member.GetClient().Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: "x"}}, client.RawPatch("application/merge-patch+json", []byte("{}"))))).To(Equal("Frozen"))
	lease := &coordinationv1.Lease{}
	renewed := func() time.Time {
		f.Expect(memberOne.Client.Get(ctx, client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease)).To(Succeed())
		return lease.Spec.RenewTime.Time
	}
	before := renewed()
	f.Eventually(renewed).Should(BeTemporally(">", before), "the claim is renewed while the member is frozen")
	f.Expect(apierrors.IsNotFound(memberOne.Client.Get(ctx, key, service))).To(BeTrue())
	f.Expect(recovered).NotTo(Receive())

	f.Expect(hubCluster.Client.Delete(ctx, freeze)).To(Succeed())
	f.Eventually(recovered).Should(Receive(), "all keys are queued again")
	f.Expect(heal("cache")).To(Succeed())
	f.Eventually(f.condition("freezes", flotillav1.ConditionFrozen)).Should(Equal("none"))
	f.Eventually(func() []string { return f.events("freezes") }).Should(ContainElements("Frozen", "Unfrozen"))
	f.unregister(secret)
}

func TestPool_starts_frozen(t *testing.T) {
	ctx := context.Background()
	own := hubCluster.Namespace(t)
	freeze := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: freezeName}}
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.Namespace = own })
	f.Expect(hubCluster.Client.Create(ctx, freeze)).To(Succeed())
	f.Eventually(func() bool { return f.pool.frozen.Load().covers(nil) }).Should(BeTrue())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: preflight.ClaimNamespace}}
	f.Expect(client.IgnoreAlreadyExists(memberOne.Client.Create(ctx, namespace))).To(Succeed())

	secret := f.register("starts-frozen", memberOne.Kubeconfig())
	f.Eventually(f.condition("starts-frozen", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Expect(f.condition("starts-frozen", flotillav1.ConditionFrozen)()).To(Equal("True Frozen"))
	f.Expect(f.condition("starts-frozen", flotillav1.ConditionClaimed)()).To(Equal("Unknown Frozen"))
	lease := &coordinationv1.Lease{}
	claimed := func() error {
		return memberOne.Client.Get(ctx, client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease)
	}
	f.Expect(apierrors.IsNotFound(claimed())).To(BeTrue(), "not even a claim is made")
	f.Expect(hubCluster.Client.Delete(ctx, freeze)).To(Succeed())
	f.Eventually(f.condition("starts-frozen", flotillav1.ConditionClaimed)).Should(Equal("True Held"))
	f.Expect(claimed()).To(Succeed())
	f.Eventually(func() bool { s, _ := f.pool.Snapshot("starts-frozen"); return s.Writable() }).Should(BeTrue())
	f.unregister(secret)
}

func TestPool_writes_nothing_to_a_paused_member(t *testing.T) {
	ctx := context.Background()
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("held", memberOne.Kubeconfig())
	f.Eventually(f.state("held")).Should(Equal(clusters.StateReady))
	f.Eventually(func() int { return f.engaged.count("held") }).Should(Equal(1))
	write := func() string {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "held-"}}
		return heldFor(f.engaged.cluster("held").GetClient().Create(ctx, object))
	}
	f.Expect(write()).To(BeEmpty())
	f.patch(secret, func() { secret.Annotations = map[string]string{flotillav1.AnnotationPaused: "true"} })
	f.Eventually(write).Should(Equal("Paused"))
	f.patch(secret, func() { secret.Annotations = nil })
	f.Eventually(write).Should(BeEmpty())
	f.unregister(secret)
}

// events lists the reasons of the hub's events regarding a member.
func (f *fixture) events(name string) []string {
	list := &eventsv1.EventList{}
	if err := hubCluster.Client.List(context.Background(), list); err != nil {
		return []string{err.Error()}
	}
	var reasons []string
	for _, e := range list.Items {
		if e.Regarding.Kind == "MemberCluster" && e.Regarding.Name == name {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

func TestWatchFreeze_freezes_before_it_reads(t *testing.T) {
	g := NewWithT(t)
	p := &Pool{cfg: Config{Namespace: "flotilla-system"}}
	p.frozen.Store(&freeze{})
	client := fake.NewClientset()
	frozen := make(chan bool, 10)
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		frozen <- p.frozen.Load().covers(nil)
		return false, nil, nil
	})
	client.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
		frozen <- p.frozen.Load().covers(nil)
		return false, nil, nil
	})
	p.hub = &hub{secrets: client}
	g.Expect(p.watchFreeze(t.Context())).To(Succeed())
	g.Expect(<-frozen).To(BeTrue(), "a switch that is read later than this is not replaced")
	g.Expect(p.frozen.Load().covers(nil)).To(BeFalse(), "there is no switch")
}
