// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// removeKinds deletes our CustomResourceDefinitions from a cluster, with all objects of them, and waits for their end.
func (f *fleet) removeKinds(t *testing.T, c client.Client) {
	t.Helper()
	g := NewWithT(t)
	for _, name := range []string{"redises.flotilla.dev", "nodepools.flotilla.dev"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		g.Expect(c.Delete(f.ctx, crd)).To(Succeed())
		g.Eventually(func() bool {
			return apierrors.IsNotFound(c.Get(f.ctx, client.ObjectKeyFromObject(crd), crd))
		}, 45*time.Second, 200*time.Millisecond).Should(BeTrue(), "%s goes; its objects: %v", name, crd.Status.Conditions)
	}
}

// kindsRemovedFromHub deletes the kinds from the hub: the copies stay, and are taken up when kinds and objects are back.
func kindsRemovedFromHub(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.memberNames()[:3]
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world, asked := f.world(t, registered...), map[string]audit{}
	for _, name := range registered {
		asked[name] = f.audit(t, name)
	}
	f.removeKinds(t, f.hub)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "nothing is removed from any member")

	f.kubectl(t, "hub", "apply", "-k", f.root+"/config/hub")
	f.bringBack(t)
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "the copies are taken up as they were")
	for _, name := range registered {
		g.Expect(asked[name].requests(t, func(r request) bool { return r.write() && r.Verb == "delete" })).To(BeEmpty())
	}
}

// bringBack creates the hub's objects as Git would, as soon as the kinds are served, and waits for the fleet to be well.
func (f *fleet) bringBack(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	pool := webPool()
	pool.Spec.Labels["example.com/revision"] = "last"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, pool, cacheRedis(),
	} {
		g.Eventually(func() error {
			object.SetResourceVersion("")
			return client.IgnoreAlreadyExists(f.hub.Create(f.ctx, object))
		}, 20*time.Second, 200*time.Millisecond).Should(Succeed())
	}
	g.Eventually(func(g Gomega) {
		redis := f.hubRedis()
		g.Expect(conditionStatus(redis.Status.Conditions, "FullyReady")).To(Equal("True"))
		g.Expect(redis.Status.PlacedIn).To(HaveLen(3))
		g.Expect(f.hubPool().Status.PlacedIn).To(HaveLen(3))
	}, 60*time.Second, 200*time.Millisecond).Should(Succeed())
}
