// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstest_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// mapper knows the kinds that are used here; the server has no discovery for it.
func mapper() apimeta.RESTMapper {
	m := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ConfigMap", "Secret"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), apimeta.RESTScopeNamespace)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), apimeta.RESTScopeRoot)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), apimeta.RESTScopeNamespace)
	m.Add(flotillav1.GroupVersion.WithKind("Redis"), apimeta.RESTScopeNamespace)
	return m
}

func connect(t *testing.T, s *clusterstest.Server) (*rest.Config, client.Client) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: mapper()})
	if err != nil {
		t.Fatal(err)
	}
	return config, c
}

func TestServer_keeps_objects(t *testing.T) {
	g := NewWithT(t)
	ctx := context.Background()
	_, c := connect(t, clusterstest.Start(t))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", Finalizers: []string{"example.com/keep"}}}
	g.Expect(apierrors.IsNotFound(c.Create(ctx, lease.DeepCopy()))).To(BeTrue(), "there is no namespace")
	g.Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})).To(Succeed())
	g.Expect(c.Create(ctx, lease)).To(Succeed())
	g.Expect(lease.UID).NotTo(BeEmpty())
	g.Expect(apierrors.IsAlreadyExists(c.Create(ctx, lease.DeepCopy()))).To(BeTrue())

	stale := lease.DeepCopy()
	lease.Spec.HolderIdentity = new("me")
	g.Expect(c.Update(ctx, lease)).To(Succeed())
	g.Expect(lease.ResourceVersion).NotTo(Equal(stale.ResourceVersion))
	g.Expect(apierrors.IsConflict(c.Update(ctx, stale))).To(BeTrue())
	wrong := client.Preconditions{ResourceVersion: new(stale.ResourceVersion)}
	g.Expect(apierrors.IsConflict(c.Delete(ctx, lease, wrong))).To(BeTrue())
	g.Expect(c.Delete(ctx, lease, client.Preconditions{UID: new(lease.UID)})).To(Succeed())
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	g.Expect(lease.DeletionTimestamp).NotTo(BeNil())
	g.Expect(*lease.Spec.HolderIdentity).To(Equal("me"))
	before := lease.DeepCopy()
	lease.Finalizers = nil
	g.Expect(c.Patch(ctx, lease, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	g.Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(lease), lease))).To(BeTrue())
}

func TestServer_feeds_caches(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	labelled := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}
	}
	of := map[string]string{flotillav1.LabelRedis: "cart"}
	s := clusterstest.Start(t, &corev1.ConfigMap{ObjectMeta: labelled("early", of)}, &corev1.ConfigMap{ObjectMeta: labelled("foreign", nil)})
	config, c := connect(t, s)
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: of})
	g.Expect(err).NotTo(HaveOccurred())
	cached, err := cache.New(config, cache.Options{
		Scheme: testenv.Scheme(), Mapper: mapper(), ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: selector}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	go func() { _ = cached.Start(ctx) }()
	names := func() []string {
		list := &corev1.ConfigMapList{}
		if err := cached.List(ctx, list); err != nil {
			return []string{err.Error()}
		}
		var found []string
		for _, item := range list.Items {
			found = append(found, item.Name)
		}
		return found
	}
	g.Eventually(names).Should(ConsistOf("early"))
	g.Expect(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: labelled("late", of)})).To(Succeed())
	g.Eventually(names).Should(ConsistOf("early", "late"))
	s.Put(&corev1.ConfigMap{ObjectMeta: labelled("early", nil)})
	g.Eventually(names).Should(ConsistOf("late"), "an object that is not selected any more")
	s.Cut()
	s.Put(&corev1.ConfigMap{ObjectMeta: labelled("later", of)})
	g.Eventually(names).Within(time.Minute).Should(ConsistOf("late", "later"))
	g.Expect(c.Delete(ctx, &corev1.ConfigMap{ObjectMeta: labelled("late", nil)})).To(Succeed())
	g.Eventually(names).Within(time.Minute).Should(ConsistOf("later"))

	s.Put(&flotillav1.Redis{ObjectMeta: labelled("cart", nil)})
	redises := &flotillav1.RedisList{}
	g.Expect(cached.List(ctx, redises)).To(Succeed())
	g.Expect(redises.Items).To(HaveLen(1))
}
