// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// badContentAfterGood breaks a registration that works. The credential in use goes on working.
func badContentAfterGood(t *testing.T, f *fleet) {
	const name = "member-2"
	g := NewWithT(t)
	bad := f.registration(t, name, map[string]string{"region": "eu"})
	bad.Data = map[string][]byte{"kubeconfig": []byte("not: [a kubeconfig")}
	f.put(t, bad)
	g.Eventually(func(g Gomega) {
		conditions := f.memberCluster(name).Status.Conditions
		accepted := apimeta.FindStatusCondition(conditions, flotillav1.ConditionCredentialsAccepted)
		g.Expect(accepted.Reason).To(Equal(flotillav1.ReasonParseError))
		g.Expect(accepted.Message).To(ContainSubstring("until the manager restarts"))
		g.Expect(conditionStatus(conditions, flotillav1.ConditionReady)).To(Equal("True"), "the credential in use goes on working")
	}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
	expectReaction(t, f, name)
	f.register(t, name, "eu")
	g.Eventually(func() string {
		return conditionStatus(f.memberCluster(name).Status.Conditions, flotillav1.ConditionCredentialsAccepted)
	}, 10*time.Second, 100*time.Millisecond).Should(Equal("True"))
}

// memberClusterDeletedByHand deletes what the manager publishes of a member. That is no offboarding.
func memberClusterDeletedByHand(t *testing.T, f *fleet) {
	const name = "member-1"
	g := NewWithT(t)
	f.settled(t, name)
	world, asked, before := f.world(t, name), f.audit(t, name), f.memberCluster(name)
	g.Expect(f.hub.Delete(f.ctx, f.memberCluster(name))).To(Succeed())
	g.Eventually(func(g Gomega) {
		back := f.memberCluster(name)
		g.Expect(back.UID).NotTo(BeEmpty())
		g.Expect(back.UID).NotTo(Equal(before.UID))
		g.Expect(back.Labels).To(Equal(before.Labels))
		g.Expect(conditionStatus(back.Status.Conditions, flotillav1.ConditionReady)).To(Equal("True"))
	}, 15*time.Second, 100*time.Millisecond).Should(Succeed())
	expectReaction(t, f, name)
	g.Expect(cmp.Diff(world, f.world(t, name))).To(BeEmpty(), "nothing in the member changes")
	g.Expect(f.hubRedis().Status.PlacedIn).To(ContainElement(name))
	g.Expect(asked.requests(t, func(r request) bool { return r.relist() || (r.write() && r.Verb == "delete") })).To(BeEmpty())
}

// deletedInTheMember deletes what the pool has made in a member.
func deletedInTheMember(t *testing.T, f *fleet) {
	const name = "member-1"
	g, member := NewWithT(t), f.members[name]
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "node-pool-web"}}
	g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(class), class)).To(Succeed())
	uid := class.UID
	g.Expect(member.Delete(f.ctx, class)).To(Succeed())
	node := f.nodes(name)[0]
	node.Spec.Taints = nil
	delete(node.Labels, "example.com/team")
	g.Expect(member.Update(f.ctx, &node)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(class), class)).To(Succeed())
		g.Expect(class.UID).NotTo(Equal(uid))
		now := f.node(name, node.Name)
		g.Expect(now.Labels).To(HaveKeyWithValue("example.com/team", "web"))
		g.Expect(tainted(now)).To(BeTrue())
		g.Expect(f.poolEvents(member)).To(ContainElements("RuntimeClassRecreated", "NodeHealed"))
	}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
}

// namespaceDeletedInTheMember deletes the namespace of a Redis, which is made again, empty. A person is told until they say
// that they know.
func namespaceDeletedInTheMember(t *testing.T, f *fleet) {
	const member, name = "member-1", "mislaid"
	g := NewWithT(t)
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	redis := &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
		Spec:       flotillav1.RedisSpec{Replicas: new(int32(1)), Placement: &flotillav1.Placement{Clusters: []string{member}}},
	}
	g.Expect(f.hub.Create(f.ctx, home.DeepCopy())).To(Succeed())
	g.Expect(f.hub.Create(f.ctx, redis)).To(Succeed())
	expect := func(recreated string, names int) {
		t.Helper()
		g.Eventually(func(g Gomega) {
			g.Expect(f.hub.Get(f.ctx, client.ObjectKeyFromObject(redis), redis)).To(Succeed())
			g.Expect(conditionStatus(redis.Status.Conditions, flotillav1.ConditionFullyReady)).To(Equal("True"))
			g.Expect(conditionStatus(redis.Status.Conditions, flotillav1.ConditionCopyRecreated)).To(Equal(recreated))
			g.Expect(redis.Status.Recreated).To(HaveLen(names))
			g.Expect(redis.Annotations).NotTo(HaveKey(flotillav1.AnnotationConfirmRecreated))
		}, 60*time.Second, 200*time.Millisecond).Should(Succeed())
	}
	expect("", 0)
	copied := &flotillav1.Redis{}
	g.Expect(f.members[member].Get(f.ctx, client.ObjectKeyFromObject(redis), copied)).To(Succeed())
	uid := copied.UID

	g.Expect(f.members[member].Delete(f.ctx, home.DeepCopy())).To(Succeed())
	expect("True", 1)
	g.Expect(f.members[member].Get(f.ctx, client.ObjectKeyFromObject(redis), copied)).To(Succeed())
	g.Expect(copied.UID).NotTo(Equal(uid))
	g.Expect(redis.Status.Recreated[0].Name).To(Equal(member))
	told := &eventsv1.EventList{}
	g.Expect(f.hub.List(f.ctx, told, client.InNamespace(name), client.MatchingFields{"reason": flotillav1.ReasonCopyRecreated})).To(Succeed())
	g.Expect(told.Items).To(HaveLen(1))

	f.kubectl(t, "hub", "-n", name, "annotate", "redis", name, flotillav1.AnnotationConfirmRecreated+"="+member)
	expect("", 0)
	g.Expect(f.hub.Delete(f.ctx, redis)).To(Succeed())
	g.Eventually(func() bool {
		f.confirmHeld(redis)
		return apierrors.IsNotFound(f.hub.Get(f.ctx, client.ObjectKeyFromObject(redis), redis))
	}, 60*time.Second, 200*time.Millisecond).Should(BeTrue())
}

// frozen stops all writes with the switch.
func frozen(t *testing.T, f *fleet) {
	g, member := NewWithT(t), f.members["member-1"]
	freeze := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "flotilla-freeze"},
		Data:       map[string]string{"reason": "The suite looks"},
	}
	g.Expect(f.hub.Create(f.ctx, freeze)).To(Succeed())
	t.Cleanup(func() { _ = client.IgnoreNotFound(f.hub.Delete(f.ctx, freeze)) })
	g.Eventually(func(g Gomega) {
		for _, name := range f.registered() {
			g.Expect(conditionStatus(f.memberCluster(name).Status.Conditions, flotillav1.ConditionFrozen)).To(Equal("True"))
		}
	}, 10*time.Second, 100*time.Millisecond).Should(Succeed())
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache-any"}}
	g.Expect(member.Delete(f.ctx, service)).To(Succeed())
	g.Consistently(func() bool {
		return apierrors.IsNotFound(member.Get(f.ctx, client.ObjectKeyFromObject(service), service))
	}, 4*time.Second, 100*time.Millisecond).Should(BeTrue(), "what is deleted while frozen stays deleted")
	g.Expect(f.hub.Delete(f.ctx, freeze)).To(Succeed())
	g.Eventually(func() error { return member.Get(f.ctx, client.ObjectKeyFromObject(service), service) }, 10*time.Second, 50*time.Millisecond).Should(Succeed())
	g.Eventually(func() string {
		return conditionStatus(f.memberCluster("member-1").Status.Conditions, flotillav1.ConditionFrozen)
	}, 10*time.Second, 100*time.Millisecond).ShouldNot(Equal("True"))
}

// drained removes the copies from a member whose registration stays.
func drained(t *testing.T, f *fleet) {
	const name = "member-3"
	g, member := NewWithT(t), f.members[name]
	secret := f.registration(t, name, map[string]string{"region": "us"})
	secret.Annotations = map[string]string{flotillav1.AnnotationDrain: "true"}
	claims := &corev1.PersistentVolumeClaimList{}
	g.Expect(member.List(f.ctx, claims, client.InNamespace(namespace))).To(Succeed())
	f.put(t, secret)
	g.Eventually(func(g Gomega) {
		f.confirmHeld(webPool(), cacheRedis())
		g.Expect(conditionStatus(f.memberCluster(name).Status.Conditions, flotillav1.ConditionDrained)).To(Equal("True"))
		g.Expect(apierrors.IsNotFound(member.Get(f.ctx, client.ObjectKeyFromObject(cacheRedis()), &flotillav1.Redis{}))).To(BeTrue())
		g.Expect(apierrors.IsNotFound(member.Get(f.ctx, client.ObjectKeyFromObject(webPool()), &flotillav1.NodePool{}))).To(BeTrue())
		g.Expect(f.hubRedis().Status.ClusterCounts.Desired).To(Equal(int32(2)))
	}, 30*time.Second, 200*time.Millisecond).Should(Succeed())
	for _, node := range f.nodes(name) {
		g.Expect(node.Labels).NotTo(HaveKey("example.com/team"))
	}
	kept := &corev1.PersistentVolumeClaimList{}
	g.Expect(member.List(f.ctx, kept, client.InNamespace(namespace))).To(Succeed())
	g.Expect(kept.Items).To(HaveLen(len(claims.Items)), "the data stays")
	f.register(t, name, "us")
	expectBack(t, f, name)
}

// managerKilled kills the manager at random points of its work, as many times as given.
func managerKilled(t *testing.T, f *fleet, times int) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world := f.world(t, registered...)
	watched := f.watchStatus(t)
	for i := range times {
		pause := time.Duration(rand.Int64N(int64(4 * time.Second)))
		t.Logf("Kill %d comes %v after a start", i+1, pause)
		g.Expect(f.setRevision(f.ctx, flotillav1.LabelValue("kill-"+string(rune('a'+i))))).To(Succeed())
		for _, name := range registered {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache-any"}}
			g.Expect(client.IgnoreNotFound(f.members[name].Delete(f.ctx, service))).To(Succeed())
		}
		select {
		case <-time.After(pause):
		case <-f.ctx.Done():
		}
		f.killManager()
		f.freeLease(t)
		f.startManager(t)
	}
	// A process that was killed before it held the claims leaves those of the process before it. Only time ends them.
	f.expectConvergedWithin(t, 2*time.Minute, registered...)
	for _, name := range registered {
		expectBack(t, f, name)
	}
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "everything is as before the kills")
	g.Expect(watched()).To(BeEmpty(), "no status that anybody saw was blank or did not add up")
}

// anotherHub registers a member on a second hub, which is member-4.
func anotherHub(t *testing.T, f *fleet) {
	const name, second = "member-1", "member-4"
	g, other := NewWithT(t), f.members[second]
	f.install(t, second)
	g.Expect(other.Create(f.ctx, f.registration(t, name, map[string]string{"region": "eu"}))).To(Succeed())
	g.Expect(client.IgnoreAlreadyExists(other.Create(f.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rival"}}))).To(Succeed())
	rival := cacheRedis()
	rival.Namespace = "rival"
	g.Expect(other.Create(f.ctx, rival)).To(Succeed())
	f.settled(t, name)
	// With the first manager gone, whatever the hub's ServiceAccount writes is written by the second.
	f.stopManager(t)
	world, claim, asked := f.world(t, name), f.holder(t, name), f.audit(t, name)
	manager := f.runManager(t, second, "another-hub")
	t.Cleanup(func() { f.stop(t, manager) })
	g.Eventually(func(g Gomega) {
		mc := &flotillav1.MemberCluster{}
		g.Expect(other.Get(f.ctx, client.ObjectKey{Name: name}, mc)).To(Succeed())
		claimed := apimeta.FindStatusCondition(mc.Status.Conditions, flotillav1.ConditionClaimed)
		g.Expect(claimed).NotTo(BeNil())
		g.Expect(string(claimed.Status) + " " + claimed.Reason).To(Equal("False " + flotillav1.ReasonClaimedByAnotherHub))
		g.Expect(claimed.Message).To(ContainSubstring(hubID))
		g.Expect(conditionStatus(mc.Status.Conditions, flotillav1.ConditionReady)).To(Equal("False"))
	}, 30*time.Second, 100*time.Millisecond).Should(Succeed())
	f.stop(t, manager)
	g.Expect(asked.requests(t, func(r request) bool {
		return r.write() || (r.Verb != "get" && r.ObjectRef.Resource == "leases")
	})).To(BeEmpty(), "the second hub writes nothing")
	g.Expect(f.holder(t, name)).To(Equal(claim))
	g.Expect(cmp.Diff(world, f.world(t, name))).To(BeEmpty())
	f.startManager(t)
	expectBack(t, f, name)
	f.kubectl(t, second, "delete", "-n", "flotilla-clusters", "secret", name)
	f.kubectl(t, second, "patch", "redis.flotilla.dev", "-n", "rival", "cache", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	f.kubectl(t, second, "delete", "redis.flotilla.dev", "-n", "rival", "cache")
}

// holder is who holds the claim on a member.
func (f *fleet) holder(t *testing.T, name string) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := f.members[name].Get(f.ctx, client.ObjectKey{Namespace: "flotilla-system", Name: "flotilla-hub"}, lease); err != nil {
		t.Fatalf("reading the claim on %q: %v", name, err)
	}
	return strings.Join([]string{string(lease.UID), *lease.Spec.HolderIdentity}, " ")
}
