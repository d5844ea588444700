// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// byUs keeps the writes of the pool and of what uses its clients.
func byUs(a testenv.Audited) bool { return a.IsWrite() && a.UserAgent == transport.UserAgent }

// configMap is one for the tests of writes.
func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// uidOf is the UID of a real cluster.
func uidOf(t *testing.T, of *testenv.Cluster) types.UID {
	t.Helper()
	namespace := &corev1.Namespace{}
	if err := of.Client.Get(context.Background(), client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.UID
}

func TestPool_refuses_another_cluster_behind_a_registration(t *testing.T) {
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("replaced", memberOne.Kubeconfig())
	f.Eventually(f.condition("replaced", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	mark := memberTwo.AuditMark(t)

	f.patch(secret, func() { secret.Data[flotillav1.KeyKubeconfig] = memberTwo.Kubeconfig() })
	f.Eventually(f.condition("replaced", flotillav1.ConditionCredentialsAccepted)).Should(Equal("False IdentityChanged"))
	f.Expect(f.condition("replaced", flotillav1.ConditionReady)()).To(Equal("True Connected"), "the cluster that it stands for goes on")
	s, _ := f.pool.Snapshot("replaced")
	f.Expect(s.UID).To(Equal(uidOf(t, memberOne)))

	f.stop()
	f = startPool(t, f.namespace)
	f.Eventually(f.condition("replaced", flotillav1.ConditionCredentialsAccepted)).Should(Equal("False IdentityChanged"))
	f.Eventually(f.state("replaced")).Should(Equal(clusters.StateInvalid), "after a restart nothing leads to the old cluster")
	f.Expect(memberTwo.AuditedSince(t, mark, byUs)).To(BeEmpty(), "the other cluster is not written")

	f.patch(secret, func() { secret.Annotations = map[string]string{flotillav1.AnnotationReplace: "somebody-else"} })
	f.Consistently(f.state("replaced"), "300ms").Should(Equal(clusters.StateInvalid))
	f.patch(secret, func() {
		secret.Annotations = map[string]string{flotillav1.AnnotationReplace: string(uidOf(t, memberTwo))}
	})
	f.Eventually(f.condition("replaced", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	s, _ = f.pool.Snapshot("replaced")
	f.Expect(s.UID).To(Equal(uidOf(t, memberTwo)))
	f.Expect(s.Replaced).To(BeTrue(), "what is published about it is about another cluster")
	f.unregister(secret)
}

func TestPool_replaces_a_cluster_while_it_is_engaged(t *testing.T) {
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("swapped", memberOne.Kubeconfig())
	f.Eventually(f.condition("swapped", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	before, _ := f.pool.Snapshot("swapped")
	f.patch(secret, func() {
		secret.Data[flotillav1.KeyKubeconfig] = memberTwo.Kubeconfig()
		secret.Annotations = map[string]string{flotillav1.AnnotationReplace: string(uidOf(t, memberTwo))}
	})
	f.Eventually(func() types.UID { s, _ := f.pool.Snapshot("swapped"); return s.UID }).Should(Equal(uidOf(t, memberTwo)))
	f.Eventually(f.state("swapped")).Should(Equal(clusters.StateReady))
	after, _ := f.pool.Snapshot("swapped")
	f.Expect(after.Incarnation).To(BeNumerically(">", before.Incarnation), "the caches are built anew")
	f.Expect([]bool{before.Replaced, after.Replaced}).To(Equal([]bool{false, true}))
	f.unregister(secret)
}

// An API server that comes back after an outage as another cluster is the likeliest way to be replaced unnoticed: a
// restored machine, a new cluster under an old name.
func TestPool_refuses_a_cluster_that_comes_back_as_another(t *testing.T) {
	shown := newFace(t, memberTwo, "born-first")
	l := testenv.NewLine(t, hostOf(t, shown.server.URL))
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("changeling", l.Through(t, shown.kubeconfig(t)))
	f.Eventually(f.condition("changeling", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	held := f.engaged.cluster("changeling")
	l.Hush(t)
	f.Eventually(f.state("changeling")).Should(Equal(clusters.StateUnreachable))
	shown.uid.Store(types.UID("born-second"))
	mark := memberTwo.AuditMark(t)
	l.Restore(t)
	f.Eventually(f.condition("changeling", flotillav1.ConditionCredentialsAccepted)).Should(Equal("False IdentityChanged"))
	f.Expect(f.engaged.ended("changeling")).To(BeTrue())
	f.Expect(held.GetClient().Create(context.Background(), configMap("default", "changeling"))).NotTo(Succeed(), "who holds the old cluster still cannot write")
	f.Expect(memberTwo.AuditedSince(t, mark, byUs)).To(BeEmpty())
	f.unregister(secret)
}

func TestPool_writes_nothing_to_a_member_of_another_hub(t *testing.T) {
	ctx := context.Background()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}}
	lease.Spec.HolderIdentity = new("other/uid")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: preflight.ClaimNamespace}}
	f := startPool(t, hubCluster.Namespace(t))
	f.Expect(client.IgnoreAlreadyExists(memberTwo.Client.Create(ctx, namespace))).To(Succeed())
	f.Expect(memberTwo.Client.Create(ctx, lease)).To(Succeed())
	t.Cleanup(func() { _ = memberTwo.Client.Delete(context.Background(), lease) })

	mark := memberTwo.AuditMark(t)
	secret := f.register("theirs", memberTwo.Kubeconfig())
	f.Eventually(f.condition("theirs", flotillav1.ConditionClaimed)).Should(Equal("False ClaimedByAnotherHub"))
	readsClaim := func(a testenv.Audited) bool {
		return a.Verb == "get" && strings.HasSuffix(a.RequestURI, "/"+preflight.ClaimName)
	}
	f.Eventually(func() int { return len(memberTwo.AuditedSince(t, mark, readsClaim)) }).Should(BeNumerically(">=", 2), "it is looked at again")
	f.Expect(f.engaged.count("theirs")).To(BeZero())
	f.Expect(memberTwo.AuditedSince(t, mark, byUs)).To(BeEmpty())

	f.patch(secret, func() { secret.Annotations = map[string]string{flotillav1.AnnotationTakeOver: "some-third"} })
	f.Consistently(f.state("theirs"), "300ms").Should(Equal(clusters.StateIncompatible))
	f.patch(secret, func() { secret.Annotations = map[string]string{flotillav1.AnnotationTakeOver: "other"} })
	f.Eventually(f.condition("theirs", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Expect(memberTwo.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	f.Expect(*lease.Spec.HolderIdentity).To(HavePrefix("hub/"))
	f.unregister(secret)
}

func TestPool_stops_writing_when_another_instance_takes_over(t *testing.T) {
	ctx := context.Background()
	workloads := memberTwo.Namespace(t)
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("two-instances", memberTwo.Kubeconfig())
	f.Eventually(f.condition("two-instances", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count("two-instances") }).Should(Equal(1))
	// A pass that is running holds the cluster that it was given.
	held := f.engaged.cluster("two-instances")
	f.Expect(held.GetClient().Create(ctx, configMap(workloads, "before"))).To(Succeed())

	lease := &coordinationv1.Lease{}
	f.Eventually(func() error {
		if err := memberTwo.Client.Get(ctx, client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease); err != nil {
			return err
		}
		lease.Spec.HolderIdentity = new("hub/twin")
		return memberTwo.Client.Update(ctx, lease)
	}).Should(Succeed())
	f.Eventually(f.condition("two-instances", flotillav1.ConditionClaimed)).Should(Equal("False Superseded"))
	mark := memberTwo.AuditMark(t)
	f.Expect(held.GetClient().Create(ctx, configMap(workloads, "after"))).NotTo(Succeed())
	f.Expect(held.GetClient().Delete(ctx, configMap(workloads, "before"))).NotTo(Succeed())
	f.Expect(memberTwo.AuditedSince(t, mark, byUs)).To(BeEmpty())
	f.Expect(memberTwo.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
	f.Expect(*lease.Spec.HolderIdentity).To(Equal("hub/twin"))

	f.unregister(secret)
	f.Expect(memberTwo.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed(), "the claim of the other instance stays")
	f.Expect(memberTwo.Client.Delete(ctx, lease)).To(Succeed())
}
