// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// redisIn makes a Redis in the member with these annotations and finalizers.
func redisIn(t *testing.T, namespace, name string, annotations map[string]string, finalizers ...string) *flotillav1.Redis {
	t.Helper()
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations, Finalizers: finalizers}}
	if err := memberOne.Client.Create(context.Background(), redis); err != nil {
		t.Fatalf("creating Redis %q: %v", name, err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_ = memberOne.Client.Patch(ctx, redis, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		_ = memberOne.Client.Delete(ctx, redis)
	})
	return redis
}

func TestPool_says_when_a_member_is_drained(t *testing.T) {
	ctx := context.Background()
	workloads := memberOne.Namespace(t)
	f := startPool(t, hubCluster.Namespace(t))
	copyOf := func(name, hub string) *flotillav1.Redis {
		return redisIn(t, workloads, name, map[string]string{flotillav1.AnnotationHub: hub, flotillav1.AnnotationPlacedFrom: workloads + "/" + name})
	}
	first, second := copyOf("first", "hub"), copyOf("second", "hub")
	copyOf("of-another-hub", "other")
	redisIn(t, workloads, "born-here", nil)
	redisIn(t, workloads, "restored", map[string]string{flotillav1.AnnotationHub: "hub", flotillav1.AnnotationPlacedFrom: "elsewhere/restored"})

	secret := f.register("drains", memberOne.Kubeconfig(), func(s *corev1.Secret) {
		s.Annotations = map[string]string{flotillav1.AnnotationDrain: "true"}
	})
	message := func() string {
		object := &flotillav1.MemberCluster{}
		if err := hubCluster.Client.Get(ctx, client.ObjectKey{Name: "drains"}, object); err != nil {
			return err.Error()
		}
		if c := apimeta.FindStatusCondition(object.Status.Conditions, flotillav1.ConditionDrained); c != nil {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
		return "none"
	}
	f.Eventually(message).Should(Equal("False Draining: 2 copies of this hub are still in the member"))
	f.Expect(memberOne.Client.Delete(ctx, first)).To(Succeed())
	f.Eventually(message).Should(Equal("False Draining: 1 copy of this hub is still in the member"))
	f.patch(secret, func() { secret.Annotations[flotillav1.AnnotationPaused] = "true" })
	f.Eventually(message).Should(HaveSuffix("; nothing is removed while it is paused or frozen"))
	f.Expect(memberOne.Client.Delete(ctx, second)).To(Succeed())
	f.Eventually(message).Should(Equal("True AllRemoved: No copy of this hub is left in the member"))
	f.patch(secret, func() { secret.Annotations = nil })
	f.Eventually(message).Should(Equal("none"))
	f.unregister(secret)
}
