// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// patient has registrations be gone for longer than a test takes.
func patient(c *Config) { c.Grace = time.Hour }

// anew is a Secret as it was before it was created.
func anew(secret *corev1.Secret) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels, Annotations: secret.Annotations},
		Data:       secret.Data,
	}
}

// remove deletes a registration.
func (f *fixture) remove(secret *corev1.Secret) {
	f.t.Helper()
	f.Expect(hubCluster.Client.Delete(context.Background(), secret)).To(Succeed())
}

// write returns why nothing is written to an engaged member; empty when it is.
func (f *fixture) write(name string) func() string {
	return func() string {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "lost-"}}
		return heldFor(f.engaged.cluster(multicluster.ClusterName(name)).GetClient().Create(context.Background(), object))
	}
}

// touched are the writes of the pool in a member, without those of its claim.
func touched(a testenv.Audited) bool {
	return byUs(a) && (a.ObjectRef.Resource != "leases" || a.Verb != "update")
}

func TestPool_keeps_a_member_whose_registration_is_made_again(t *testing.T) {
	ctx := context.Background()
	capi := func(s *corev1.Secret) {
		s.Name = "remade-cluster-api-kubeconfig"
		s.Labels = map[string]string{registration.LabelClusterAPIName: "remade-cluster-api"}
		s.Data = map[string][]byte{"value": s.Data[flotillav1.KeyKubeconfig]}
	}
	deleteAndCreate := func(f *fixture, secret *corev1.Secret) {
		f.remove(secret)
		f.Eventually(f.condition(f.only(), flotillav1.ConditionPaused)).Should(Equal("True RegistrationGone"))
		f.Expect(f.condition(f.only(), flotillav1.ConditionReady)()).To(Equal("True Connected"), "it is observed as before")
		f.Expect(f.write(f.only())()).To(Equal("Paused"))
		f.Eventually(func() []string { return f.events(f.only()) }).Should(ContainElement("RegistrationGone"))
		f.Expect(hubCluster.Client.Create(ctx, anew(secret))).To(Succeed())
	}
	replace := func(f *fixture, secret *corev1.Secret) {
		manifest, err := yaml.Marshal(anew(secret))
		f.Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(f.t.TempDir(), "secret.yaml")
		f.Expect(os.WriteFile(file, manifest, 0o600)).To(Succeed())
		(&surroundings{fixture: f}).kubectl(hubCluster, "replace", "--force", "-f", file)
	}
	for name, tc := range map[string]struct {
		adjust func(*corev1.Secret)
		remake func(*fixture, *corev1.Secret)
	}{
		"remade-deleted":     {func(*corev1.Secret) {}, deleteAndCreate},
		"remade-replaced":    {func(*corev1.Secret) {}, replace},
		"remade-cluster-api": {capi, deleteAndCreate},
	} {
		t.Run(name, func(t *testing.T) {
			workloads := memberOne.Namespace(t)
			f := startPool(t, hubCluster.Namespace(t), patient, func(c *Config) {
				c.Sources[0].Conventions = append(c.Sources[0].Conventions, registration.ConventionClusterAPI)
			})
			kept := redisIn(t, workloads, "kept", nil, flotillav1.FinalizerRedis)
			secret := f.register(name, memberOne.Kubeconfig(), tc.adjust)
			f.Eventually(f.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
			f.Eventually(func() int { return f.engaged.count(multicluster.ClusterName(name)) }).Should(Equal(1))
			f.Eventually(f.write(name)).Should(BeEmpty())
			before, _ := f.pool.Snapshot(multicluster.ClusterName(name))
			mark := memberOne.AuditMark(t)

			tc.remake(f, secret)
			remade := &corev1.Secret{}
			f.Expect(hubCluster.Client.Get(ctx, client.ObjectKeyFromObject(secret), remade)).To(Succeed())
			f.Expect(remade.UID).NotTo(Equal(secret.UID))
			object := &flotillav1.MemberCluster{}
			f.Eventually(func() string {
				f.Expect(hubCluster.Client.Get(ctx, client.ObjectKey{Name: name}, object)).To(Succeed())
				return object.Spec.SecretRef.UID
			}).Should(Equal(string(remade.UID)))
			f.Eventually(f.condition(name, flotillav1.ConditionPaused)).Should(Equal("none"))
			f.Expect(f.condition(name, flotillav1.ConditionReady)()).To(Equal("True Connected"))
			f.Expect(memberOne.AuditedSince(t, mark, touched)).To(BeEmpty(), "nothing in the member is touched")
			f.Expect(f.write(name)()).To(BeEmpty())
			after, _ := f.pool.Snapshot(multicluster.ClusterName(name))
			f.Expect(after.Incarnation).To(Equal(before.Incarnation))
			f.Expect(f.engaged.count(multicluster.ClusterName(name))).To(Equal(1))
			f.Expect(f.engaged.ended(multicluster.ClusterName(name))).To(BeFalse())
			f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
			f.Expect(kept.Finalizers).To(Equal([]string{flotillav1.FinalizerRedis}))
			f.unregister(remade)
		})
	}
}

// only is the name of the only member.
func (f *fixture) only() string {
	f.t.Helper()
	all := f.pool.Snapshots()
	f.Expect(all).To(HaveLen(1))
	return string(all[0].Name)
}

func TestPool_offboards_when_the_time_of_a_lost_registration_is_over(t *testing.T) {
	ctx := context.Background()
	clk := &leapClock{}
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.Clock, c.Grace = clk, 0 })
	secret := f.register("lost", memberOne.Kubeconfig())
	f.Eventually(f.condition("lost", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	rival := f.register("rival", memberOne.Kubeconfig(), func(s *corev1.Secret) {
		s.Annotations = map[string]string{flotillav1.AnnotationClusterName: "lost"}
	})
	f.remove(secret)
	f.Eventually(f.condition("lost", flotillav1.ConditionPaused)).Should(Equal("True RegistrationGone"))
	clk.leap(50 * time.Second)
	f.pool.wakeAll()
	f.Consistently(f.condition("lost", flotillav1.ConditionPaused), "500ms").Should(Equal("True RegistrationGone"))
	f.Expect(f.pool.member("lost").holder().Name).To(Equal("lost"), "another Secret waits for the name")

	clk.leap(10 * time.Second)
	f.pool.wakeAll()
	f.Eventually(f.offboardNote("lost")).Should(Equal(`Normal: Offboarded cluster "lost"; its objects stay`))
	f.Eventually(func() string {
		if m := f.pool.member("lost"); m != nil {
			return m.holder().Name
		}
		return ""
	}).Should(Equal("rival"))
	f.Eventually(f.condition("lost", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.unregister(rival)
	f.Eventually(func() int { return len(f.pool.Snapshots()) }).Should(BeZero())
	lease := &coordinationv1.Lease{}
	f.Expect(apierrors.IsNotFound(memberOne.Client.Get(ctx, client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease))).To(BeTrue())
}

func TestPool_offboards_at_once_what_is_unregistered(t *testing.T) {
	f := startPool(t, hubCluster.Namespace(t), patient)
	secret := f.register("unregistered", memberOne.Kubeconfig())
	f.Eventually(f.condition("unregistered", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.patch(secret, func() { secret.Annotations = map[string]string{flotillav1.AnnotationUnregister: "true"} })
	f.Consistently(f.state("unregistered"), "300ms").Should(Equal(clusters.StateReady), "the annotation alone does nothing")
	f.remove(secret)
	f.Eventually(f.offboardNote("unregistered")).Should(Equal(`Normal: Offboarded cluster "unregistered"; its objects stay`))
	f.Eventually(func() int { return len(f.pool.Snapshots()) }).Should(BeZero())
}

func TestPool_keeps_a_member_whose_registration_is_missing_at_start(t *testing.T) {
	ctx := context.Background()
	workloads := memberOne.Namespace(t)
	f := startPool(t, hubCluster.Namespace(t), patient)
	kept := redisIn(t, workloads, "kept", nil, flotillav1.FinalizerRedis)
	secret := f.register("missing", memberOne.Kubeconfig())
	f.Eventually(f.condition("missing", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.stop()
	f.remove(secret)
	gone := func() int {
		return len(slices.DeleteFunc(f.events("missing"), func(reason string) bool { return reason != "RegistrationGone" }))
	}
	for range 2 {
		f = startPool(t, f.namespace, patient)
		f.Eventually(f.state("missing")).Should(Equal(clusters.StateInvalid))
		f.Eventually(f.condition("missing", flotillav1.ConditionReady)).Should(Equal("False RegistrationGone"))
		f.Expect(f.condition("missing", flotillav1.ConditionPaused)()).To(Equal("True RegistrationGone"))
		s, _ := f.pool.Snapshot("missing")
		f.Expect(s.UID).To(Equal(uidOf(t, memberOne)))
		f.Expect(s.Accepted).To(BeTrue(), "selectors match it as before")
		f.Expect(s.Writable()).To(BeFalse())
		f.Eventually(gone).Should(Equal(1), "a restart does not repeat the event")
		f.stop()
	}
	f = startPool(t, f.namespace, patient)
	f.Eventually(f.state("missing")).Should(Equal(clusters.StateInvalid))
	back := anew(secret)
	f.Expect(hubCluster.Client.Create(ctx, back)).To(Succeed())
	f.Eventually(f.condition("missing", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(f.condition("missing", flotillav1.ConditionPaused)).Should(Equal("none"))
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
	f.Expect(kept.Finalizers).To(Equal([]string{flotillav1.FinalizerRedis}))
	f.unregister(back)
}

func TestPool_refuses_another_cluster_in_a_registration_made_again(t *testing.T) {
	f := startPool(t, hubCluster.Namespace(t), patient)
	secret := f.register("remade-another", memberOne.Kubeconfig())
	f.Eventually(f.condition("remade-another", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	mark := memberTwo.AuditMark(t)
	f.remove(secret)
	f.Eventually(f.condition("remade-another", flotillav1.ConditionPaused)).Should(Equal("True RegistrationGone"))
	other := anew(secret)
	other.Data[flotillav1.KeyKubeconfig] = memberTwo.Kubeconfig()
	f.Expect(hubCluster.Client.Create(context.Background(), other)).To(Succeed())
	f.Eventually(f.condition("remade-another", flotillav1.ConditionCredentialsAccepted)).Should(Equal("False IdentityChanged"))
	s, _ := f.pool.Snapshot("remade-another")
	f.Expect(s.UID).To(Equal(uidOf(t, memberOne)))
	f.Expect(memberTwo.AuditedSince(t, mark, byUs)).To(BeEmpty(), "the other cluster is not written")
	f.unregister(other)
}

// silentHub is a hub that does not answer whether a certain Secret exists.
type silentHub struct {
	kubernetes.Interface
	silent atomic.Bool
}

type silentCore struct {
	clientcorev1.CoreV1Interface
	hub *silentHub
}

type silentSecrets struct {
	clientcorev1.SecretInterface
	hub *silentHub
}

func (h *silentHub) CoreV1() clientcorev1.CoreV1Interface {
	return &silentCore{h.Interface.CoreV1(), h}
}

func (c *silentCore) Secrets(namespace string) clientcorev1.SecretInterface {
	return &silentSecrets{c.CoreV1Interface.Secrets(namespace), c.hub}
}

func (s *silentSecrets) List(ctx context.Context, options metav1.ListOptions) (*corev1.SecretList, error) {
	if s.hub.silent.Load() && options.FieldSelector != "" {
		return nil, errors.New("the hub is away")
	}
	return s.SecretInterface.List(ctx, options)
}

func TestPool_offboards_nothing_while_the_hub_does_not_confirm(t *testing.T) {
	hub, clk := &silentHub{}, &leapClock{}
	hub.silent.Store(true)
	f := startPoolWith(t, hubCluster.Namespace(t), func(_ mcmanager.Manager, p *Pool) error {
		hub.Interface, p.hub.secrets = p.hub.secrets, hub
		return nil
	}, func(c *Config) { c.Clock = clk })
	secret := f.register("doubted", memberOne.Kubeconfig())
	f.Eventually(f.condition("doubted", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.remove(secret)
	f.Eventually(f.condition("doubted", flotillav1.ConditionPaused)).Should(Equal("True RegistrationGone"))
	f.Consistently(f.state("doubted"), "1s").Should(Equal(clusters.StateReady))
	hub.silent.Store(false)
	clk.leap(confirmRetry)
	f.pool.wakeAll()
	f.Eventually(func() int { return len(f.pool.Snapshots()) }).Should(BeZero())
}
