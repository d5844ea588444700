// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// leftovers takes from a Redis and a pool what they need no longer, and then the objects themselves, data included.
func leftovers(t *testing.T, f *fleet) {
	const member, name = "member-1", "brief"
	g, c := NewWithT(t), f.members[member]
	place := &flotillav1.Placement{Clusters: []string{member}}
	pool := colorPool(name, func(spec *flotillav1.NodePoolSpec) { spec.Handler, spec.Placement = "runc", place })
	redis := &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       flotillav1.RedisSpec{Replicas: new(int32(1)), Placement: place, Storage: flotillav1.RedisStorage{Type: flotillav1.RedisStoragePVC, RetentionPolicy: flotillav1.RedisRetentionDelete}},
	}
	g.Expect(f.hub.Create(f.ctx, redis)).To(Succeed())
	f.addPool(t, "hub", pool)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: flotillav1.RuntimeClassPrefix + name}}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta(name)}
	data := []client.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("data-" + name + "-0")},
		&corev1.Secret{ObjectMeta: meta(name + "-auth")},
	}
	there := func(object client.Object) bool {
		return c.Get(f.ctx, client.ObjectKeyFromObject(object), object) == nil
	}
	gone := func(object client.Object) bool {
		return apierrors.IsNotFound(c.Get(f.ctx, client.ObjectKeyFromObject(object), object))
	}
	wait := 30 * time.Second
	for _, object := range append(data, class, budget) {
		g.Eventually(func() bool { return there(object) }, wait, 100*time.Millisecond).Should(BeTrue(), "%T is made", object)
	}
	g.Eventually(func() string {
		_ = f.hub.Get(f.ctx, client.ObjectKeyFromObject(redis), redis)
		return conditionStatus(redis.Status.Conditions, flotillav1.ConditionFullyReady)
	}, wait, 100*time.Millisecond).Should(Equal("True"))

	g.Expect(f.hub.Patch(f.ctx, redis, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podDisruptionBudget":{"enabled":false}}}`)))).To(Succeed())
	g.Eventually(func() bool { return gone(budget) }, wait, 100*time.Millisecond).Should(BeTrue(), "the PodDisruptionBudget goes")

	first := class.UID
	f.changePoolIn(t, "hub", name, `{"taints":[{"key":"`+onlyKey+`","value":"other","effect":"NoSchedule"}]}`)
	g.Eventually(func() string {
		g.Expect(there(class)).To(BeTrue())
		return class.Scheduling.Tolerations[0].Value
	}, wait, 100*time.Millisecond).Should(Equal("other"))
	g.Expect(class.UID).To(Equal(first), "the RuntimeClass is changed in place")
	f.changePoolIn(t, "hub", name, `{"handler":"runsc"}`)
	g.Eventually(func() string {
		_ = c.Get(f.ctx, client.ObjectKeyFromObject(class), class)
		return class.Handler
	}, wait, 100*time.Millisecond).Should(Equal("runsc"))
	f.changePoolIn(t, "hub", name, `{"handler":null}`)
	g.Eventually(func() bool { return gone(class) }, wait, 100*time.Millisecond).Should(BeTrue(), "the RuntimeClass goes")

	g.Expect(f.hub.Delete(f.ctx, redis)).To(Succeed())
	g.Eventually(func() bool {
		f.confirmHeld(redis)
		return apierrors.IsNotFound(f.hub.Get(f.ctx, client.ObjectKeyFromObject(redis), redis))
	}, wait, 100*time.Millisecond).Should(BeTrue())
	// A claim goes when the Pod that has it is gone.
	for _, object := range data {
		g.Eventually(func() bool { return gone(object) }, 2*wait, 200*time.Millisecond).Should(BeTrue(), "%T goes with the Redis", object)
	}
}
