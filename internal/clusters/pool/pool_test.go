// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

var hubCluster, memberOne, memberTwo *testenv.Cluster

// A pool takes an API server once. Tests that run side by side reserve the one that they need, or take clusters of their
// own, fakes or faces.
var reservedOne, reservedTwo = reservation{member: &memberOne}, reservation{member: &memberTwo}

type reservation struct {
	member **testenv.Cluster
	mu     sync.Mutex
}

// take has the test run side by side with others, and alone with the member.
func (r *reservation) take(t *testing.T) {
	t.Helper()
	t.Parallel()
	r.mu.Lock()
	t.Cleanup(func() {
		freeClaim(*r.member)
		r.mu.Unlock()
	})
}

// freeIdle frees a member that no parallel test has.
func (r *reservation) freeIdle() {
	if r.mu.TryLock() {
		freeClaim(*r.member)
		r.mu.Unlock()
	}
}

// freeClaim removes the claim that a test left which failed, or whose member was gone.
func freeClaim(member *testenv.Cluster) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}}
	_ = member.Client.Delete(context.Background(), lease)
}

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &hubCluster, &memberOne, &memberTwo)) }

// engagements is an Aware that counts.
type engagements struct {
	mu     sync.Mutex
	counts map[multicluster.ClusterName]int
	ctxs   map[multicluster.ClusterName]context.Context
	last   map[multicluster.ClusterName]cluster.Cluster
	// panics is the name of a member whose first engagement panics.
	panics multicluster.ClusterName
}

func (e *engagements) Engage(ctx context.Context, name multicluster.ClusterName, c cluster.Cluster) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[name]++
	e.ctxs[name], e.last[name] = ctx, c
	context.AfterFunc(ctx, func() { e.release(name, c) })
	if e.panics == name && e.counts[name] == 1 {
		panic("engaging " + name)
	}
	return nil
}

// release drops a cluster, whose caches would stay otherwise.
func (e *engagements) release(name multicluster.ClusterName, c cluster.Cluster) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last[name] == c {
		delete(e.last, name)
	}
}

func (e *engagements) Start(ctx context.Context) error { <-ctx.Done(); return nil }

func (e *engagements) count(name multicluster.ClusterName) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts[name]
}

func (e *engagements) ended(name multicluster.ClusterName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ctxs[name] != nil && e.ctxs[name].Err() != nil
}

func (e *engagements) cluster(name multicluster.ClusterName) cluster.Cluster {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last[name]
}

// fixture is a running pool on the real hub, with a namespace of registrations of its own.
type fixture struct {
	*WithT
	t         *testing.T
	pool      *Pool
	engaged   *engagements
	namespace string
	stop      func()
}

// quick is a health policy that decides within a second or two.
func quick() Health {
	return Health{
		Interval: 500 * time.Millisecond, Timeout: time.Second, Retry: 100 * time.Millisecond, Patience: 300 * time.Millisecond,
		AwayTimeout: time.Second,
	}
}

// startPool runs a pool in a manager. Each test has its own namespace and hub id, but the hub's MemberClusters are shared,
// so names of members differ between tests.
func startPool(t *testing.T, namespace string, adjust ...func(*Config)) *fixture {
	t.Helper()
	return startPoolWith(t, namespace, nil, adjust...)
}

// startPoolWith runs a pool in a manager together with controllers, if any.
func startPoolWith(t *testing.T, namespace string, controllers func(mcmanager.Manager, *Pool) error, adjust ...func(*Config)) *fixture {
	t.Helper()
	settings := Config{
		HubID: "hub", Health: quick(), ClaimRenewal: time.Second, Grace: 50 * time.Millisecond,
		// A pool is started again when the one before has been stopped.
		Ended:   func(string) bool { return true },
		Sources: []registration.Source{{Namespace: namespace, Conventions: []registration.Convention{registration.ConventionFlotilla, registration.ConventionMulticlusterRuntime}}},
	}
	for _, fn := range adjust {
		fn(&settings)
	}
	pool, err := New(settings)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := mcmanager.New(hubCluster.Config, pool, manager.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	engaged := &engagements{
		counts: map[multicluster.ClusterName]int{}, ctxs: map[multicluster.ClusterName]context.Context{},
		last: map[multicluster.ClusterName]cluster.Cluster{},
	}
	if err := mgr.Add(engaged); err != nil {
		t.Fatal(err)
	}
	if controllers != nil {
		if err := controllers(mgr, pool); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		deleteMemberClusters(namespace)
		reservedOne.freeIdle()
		reservedTwo.freeIdle()
	})
	f := &fixture{WithT: NewWithT(t), t: t, pool: pool, engaged: engaged, namespace: namespace, stop: stop}
	f.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	return f
}

// deleteMemberClusters deletes those of one namespace of registrations. Other tests may be running.
func deleteMemberClusters(namespace string) {
	list := &flotillav1.MemberClusterList{}
	_ = hubCluster.Client.List(context.Background(), list)
	for _, object := range list.Items {
		if object.Spec.SecretRef.Namespace == namespace {
			_ = hubCluster.Client.Delete(context.Background(), &object)
		}
	}
}

// register creates a registration and removes it at the end, so that the next test finds the member free.
func (f *fixture) register(name string, kubeconfig []byte, adjust ...func(*corev1.Secret)) *corev1.Secret {
	f.t.Helper()
	secret := testenv.SecretFor(memberOne, f.namespace, name)
	secret.Data[flotillav1.KeyKubeconfig] = kubeconfig
	for _, fn := range adjust {
		fn(secret)
	}
	f.Expect(hubCluster.Client.Create(context.Background(), secret)).To(Succeed())
	return secret
}

// patch changes a registration.
func (f *fixture) patch(secret *corev1.Secret, change func()) {
	f.t.Helper()
	before := secret.DeepCopy()
	change()
	f.Expect(hubCluster.Client.Patch(context.Background(), secret, client.MergeFrom(before))).To(Succeed())
}

// unregister deletes a registration, without a grace period, and waits until the member is gone.
func (f *fixture) unregister(secret *corev1.Secret) {
	f.t.Helper()
	atOnce := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+flotillav1.AnnotationUnregister+`":"true"}}}`))
	f.Expect(client.IgnoreNotFound(hubCluster.Client.Patch(context.Background(), secret, atOnce))).To(Succeed())
	f.Expect(client.IgnoreNotFound(hubCluster.Client.Delete(context.Background(), secret))).To(Succeed())
	f.Eventually(func() bool { _, ok := f.pool.Snapshot(multicluster.ClusterName(secret.Name)); return ok }).Should(BeFalse())
}

func (f *fixture) state(name string) func() clusters.State {
	return func() clusters.State { s, _ := f.pool.Snapshot(multicluster.ClusterName(name)); return s.State }
}

// condition reads "<status> <reason>" of a published condition.
func (f *fixture) condition(name, conditionType string) func() string {
	return func() string {
		object := &flotillav1.MemberCluster{}
		if err := hubCluster.Client.Get(context.Background(), client.ObjectKey{Name: name}, object); err != nil {
			return err.Error()
		}
		c := apimeta.FindStatusCondition(object.Status.Conditions, conditionType)
		if c == nil {
			return "none"
		}
		return string(c.Status) + " " + c.Reason
	}
}

func TestPool_joins_and_offboards(t *testing.T) {
	ctx := context.Background()
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("joins", memberOne.Kubeconfig(), func(s *corev1.Secret) {
		s.Labels["region"], s.Labels["helm.sh/chart"] = "eu", "fleet"
	})
	f.Eventually(f.condition("joins", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count("joins") }).Should(Equal(1))

	object := &flotillav1.MemberCluster{}
	f.Expect(hubCluster.Client.Get(ctx, client.ObjectKey{Name: "joins"}, object)).To(Succeed())
	f.Expect(object.Labels).To(Equal(map[string]string{"region": "eu"}))
	f.Expect(object.Spec.SecretRef.UID).To(Equal(string(secret.UID)))
	f.Expect(object.Status.UID).NotTo(BeEmpty())
	f.Expect(object.Status.KubernetesVersion).To(HavePrefix("v1."))
	f.Expect(object.Status.Endpoint).To(Equal(hostOf(t, memberOne.Config.Host)))
	f.Expect(object.Status.Credentials.Kind).To(Equal("ClientCertificate"))
	for _, c := range object.Status.Conditions {
		f.Expect(string(c.Status)).To(Equal("True"), c.Type)
	}

	member, err := f.pool.Member("joins")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(member.GetClient().List(ctx, &flotillav1.RedisList{})).To(Succeed())
	f.Expect(member.GetClient().List(ctx, &corev1.NodeList{})).To(Succeed())
	f.Expect(apierrors.IsNotFound(member.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "none"}, &corev1.Secret{}))).To(BeTrue())
	f.Expect(member.GetClient().List(ctx, &coordinationv1.LeaseList{})).NotTo(Succeed(), "a kind that is not watched must not be cached by a read")

	f.patch(secret, func() {
		secret.Labels["region"] = "us"
		secret.Annotations = map[string]string{flotillav1.AnnotationPaused: "true"}
	})
	f.Eventually(f.condition("joins", flotillav1.ConditionPaused)).Should(Equal("True Paused"))
	s, _ := f.pool.Snapshot("joins")
	f.Expect(s.Labels).To(Equal(map[string]string{"region": "us"}))
	f.Expect(s.Writable()).To(BeFalse())

	f.Expect(hubCluster.Client.Delete(ctx, object)).To(Succeed())
	f.Eventually(f.condition("joins", flotillav1.ConditionReady)).Should(Equal("True Connected"), "a MemberCluster deleted by hand comes back")
	f.Expect(f.engaged.count("joins")).To(Equal(1))

	f.patch(secret, func() { secret.Annotations = nil })
	f.Eventually(func() bool { s, _ := f.pool.Snapshot("joins"); return s.Writable() }).Should(BeTrue())

	lease := &coordinationv1.Lease{}
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease)).To(Succeed())
	f.Expect(*lease.Spec.HolderIdentity).To(HavePrefix("hub/"))

	f.patch(secret, func() { delete(secret.Labels, flotillav1.LabelCluster) })
	f.Eventually(func() bool { _, ok := f.pool.Snapshot("joins"); return ok }).Should(BeFalse())
	f.Expect(f.engaged.ended("joins")).To(BeTrue())
	_, err = f.pool.Member("joins")
	f.Expect(err).To(MatchError(multicluster.ErrClusterNotFound))
	f.Expect(apierrors.IsNotFound(hubCluster.Client.Get(ctx, client.ObjectKey{Name: "joins"}, object))).To(BeTrue())
	f.Expect(apierrors.IsNotFound(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease))).To(BeTrue(), "the claim is released")

	f.Eventually(func() []string {
		list := &eventsv1.EventList{}
		_ = hubCluster.Client.List(ctx, list)
		var reasons []string
		for _, e := range list.Items {
			if e.Regarding.Kind == "MemberCluster" && e.Regarding.Name == "joins" {
				reasons = append(reasons, e.Reason)
			}
		}
		return reasons
	}).Should(ContainElements("ClusterEngaged", "ClusterOffboarded"))
}

func TestPool_survives_an_outage(t *testing.T) {
	ctx := context.Background()
	l := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("outage", l.Through(t, memberOne.Kubeconfig()))
	f.Eventually(f.state("outage")).Should(Equal(clusters.StateReady))
	f.Eventually(func() int { return f.engaged.count("outage") }).Should(Equal(1))
	recovered := make(chan struct{}, 1)
	f.engaged.cluster("outage").(interface {
		OnRecovered(context.Context, func())
	}).OnRecovered(ctx, func() { signal(recovered) })

	l.Hush(t)
	f.Eventually(f.condition("outage", flotillav1.ConditionReachable)).Should(Equal("False Timeout"))
	f.Expect(f.condition("outage", flotillav1.ConditionReady)()).To(Equal("False Timeout"))
	member, err := f.pool.Member("outage")
	f.Expect(err).NotTo(HaveOccurred(), "an engaged member stays available while it is away")
	f.Expect(member.GetClient().List(ctx, &corev1.NodeList{})).To(Succeed(), "caches show what was last known")
	f.Expect(member.GetAPIReader().List(ctx, &corev1.NodeList{})).To(MatchError(syscall.ECONNREFUSED), "calls are not sent; the line itself would not refuse")

	node := memberOne.Node(t, "born-in-the-dark", nil)
	l.Restore(t)
	f.Eventually(f.condition("outage", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(recovered).Should(Receive())
	f.Eventually(func() error { return member.GetClient().Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}) }).Should(Succeed())
	f.Expect(f.engaged.count("outage")).To(Equal(1))
	f.unregister(secret)
}

func TestPool_rotates_without_a_gap(t *testing.T) {
	ctx := context.Background()
	l := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("rotates", memberOne.Kubeconfig())
	f.Eventually(f.state("rotates")).Should(Equal(clusters.StateReady))
	member, err := f.pool.Member("rotates")
	f.Expect(err).NotTo(HaveOccurred())

	f.patch(secret, func() { secret.Data[flotillav1.KeyKubeconfig] = []byte("garbage: [") })
	f.Eventually(f.condition("rotates", flotillav1.ConditionCredentialsAccepted)).Should(Equal("False ParseError"))
	f.Expect(f.condition("rotates", flotillav1.ConditionReady)()).To(Equal("True Connected"))
	f.Expect(member.GetAPIReader().List(ctx, &corev1.NodeList{})).To(Succeed())

	failures := make(chan error, 1)
	working, cancel := context.WithCancel(ctx)
	go func() {
		defer close(failures)
		for working.Err() == nil {
			if err := member.GetAPIReader().List(ctx, &corev1.NamespaceList{}); err != nil {
				failures <- err
				return
			}
		}
	}()
	f.patch(secret, func() { secret.Data[flotillav1.KeyKubeconfig] = l.Through(t, memberOne.Kubeconfig()) })
	f.Eventually(f.condition("rotates", flotillav1.ConditionCredentialsAccepted)).Should(Equal("True Accepted"))
	f.Eventually(func() string { return f.pool.member("rotates").publication().endpoint }).Should(Equal(l.Addr()))
	cancel()
	f.Expect(<-failures).To(Succeed(), "no call fails at a rotation")
	node := memberOne.Node(t, "after-the-rotation", nil)
	f.Eventually(func() error { return member.GetClient().Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}) }).Should(Succeed())
	f.Expect(f.engaged.count("rotates")).To(Equal(1))
	f.unregister(secret)
}

func TestPool_refuses(t *testing.T) {
	f := startPool(t, hubCluster.Namespace(t))
	first := f.register("first", memberOne.Kubeconfig())
	f.Eventually(f.state("first")).Should(Equal(clusters.StateReady))

	f.register("garbage", []byte("\x00\x01"))
	f.register("nothing", nil, func(s *corev1.Secret) { s.Data = nil })
	f.register("twin", testenv.NewLine(t, hostOf(t, memberOne.Config.Host)).Through(t, memberOne.Kubeconfig()))
	f.register("itself", hubCluster.Kubeconfig())
	f.register("alias", testenv.NewLine(t, hostOf(t, hubCluster.Config.Host)).Through(t, hubCluster.Kubeconfig()))
	f.register("misnamed", memberOne.Kubeconfig(), func(s *corev1.Secret) {
		s.Annotations = map[string]string{flotillav1.AnnotationClusterName: "Not A Name"}
	})
	f.register("rival", memberOne.Kubeconfig(), func(s *corev1.Secret) {
		s.Annotations = map[string]string{flotillav1.AnnotationClusterName: "first"}
	})
	for name, want := range map[string]string{
		"garbage": "False ParseError", "nothing": "False KeyMissing", "twin": "False DuplicateCluster",
		"itself": "False SelfRegistration", "alias": "False SelfRegistration", "misnamed": "False InvalidName", "first": "True Contested",
	} {
		f.Eventually(f.condition(name, flotillav1.ConditionCredentialsAccepted)).Should(Equal(want), name)
	}
	f.Expect(f.condition("first", flotillav1.ConditionReady)()).To(Equal("True Connected"))
	s, _ := f.pool.Snapshot("garbage")
	f.Expect(s.Accepted).To(BeFalse())
	_, err := f.pool.Member("garbage")
	f.Expect(err).To(BeAssignableToTypeOf(&clusters.NotReadyError{}))
	f.Expect(hubCluster.Client.DeleteAllOf(context.Background(), &corev1.Secret{}, client.InNamespace(f.namespace))).To(Succeed())
	f.unregister(first)
	f.Eventually(func() int { return len(f.pool.Snapshots()) }).Should(BeZero())
}

func TestPool_respects_claims(t *testing.T) {
	ctx := context.Background()
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}}
	other.Spec.HolderIdentity = new("other/uid")
	f := startPool(t, hubCluster.Namespace(t))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: preflight.ClaimNamespace}}
	f.Expect(client.IgnoreAlreadyExists(memberOne.Client.Create(ctx, namespace))).To(Succeed())
	f.Expect(memberOne.Client.Create(ctx, other)).To(Succeed())

	secret := f.register("claimed", memberOne.Kubeconfig())
	f.Eventually(f.condition("claimed", flotillav1.ConditionClaimed)).Should(Equal("False ClaimedByAnotherHub"))
	f.Expect(f.state("claimed")()).To(Equal(clusters.StateIncompatible))
	version := other.ResourceVersion
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
	f.Expect(other.ResourceVersion).To(Equal(version), "another hub's claim is not written")

	f.patch(secret, func() { secret.Annotations = map[string]string{flotillav1.AnnotationTakeOver: "other"} })
	f.Eventually(f.condition("claimed", flotillav1.ConditionReady)).Should(Equal("True Connected"))

	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
	other.Spec.HolderIdentity = new("hub/twin")
	f.Expect(memberOne.Client.Update(ctx, other)).To(Succeed())
	f.Eventually(f.condition("claimed", flotillav1.ConditionClaimed)).Should(Equal("False Superseded"))
	f.Eventually(func() bool { return f.engaged.ended("claimed") }).Should(BeTrue())
	f.Expect(memberOne.Client.Delete(ctx, other)).To(Succeed())
	f.Eventually(f.state("claimed")).Should(Equal(clusters.StateReady))
	f.unregister(secret)
}

func TestPool_keeps_what_is_published_over_a_restart(t *testing.T) {
	ctx := context.Background()
	namespace := hubCluster.Namespace(t)
	l := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	f := startPool(t, namespace)
	secret := f.register("restarts", l.Through(t, memberOne.Kubeconfig()))
	gone := f.register("leaves-meanwhile", []byte("garbage"))
	f.Eventually(f.condition("restarts", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(f.condition("leaves-meanwhile", flotillav1.ConditionReady)).Should(Equal("False ParseError"))
	f.stop()

	before := &flotillav1.MemberCluster{}
	f.Expect(hubCluster.Client.Get(ctx, client.ObjectKey{Name: "restarts"}, before)).To(Succeed())
	f.Expect(hubCluster.Client.Delete(ctx, gone)).To(Succeed())
	l.Hush(t)
	f = startPool(t, namespace)
	f.Eventually(f.state("restarts")).Should(Equal(clusters.StateConnecting))
	s, _ := f.pool.Snapshot("restarts")
	f.Expect(s.Decided).To(BeFalse())
	f.Expect(s.Accepted).To(BeTrue())
	f.Expect(f.condition("restarts", flotillav1.ConditionReady)()).To(Equal("True Connected"))
	f.Eventually(f.condition("leaves-meanwhile", flotillav1.ConditionReady)).Should(ContainSubstring("not found"))
	after := &flotillav1.MemberCluster{}
	f.Expect(hubCluster.Client.Get(ctx, client.ObjectKey{Name: "restarts"}, after)).To(Succeed())
	f.Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))
	l.Restore(t)
	f.Eventually(f.state("restarts")).Should(Equal(clusters.StateReady))
	s, _ = f.pool.Snapshot("restarts")
	ready := apimeta.FindStatusCondition(before.Status.Conditions, flotillav1.ConditionReady)
	f.Expect(s.Since.Unix()).To(Equal(ready.LastTransitionTime.Unix()))
	f.unregister(secret)
}

func TestPool_is_not_held_up_by_a_dead_member(t *testing.T) {
	reservedOne.take(t)
	dead := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	dead.Hush(t)
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.Slots = 1 })
	deadSecret := f.register("dead", dead.Through(t, memberOne.Kubeconfig()))
	f.Eventually(f.state("dead")).Should(Equal(clusters.StateConnecting))
	secret := f.register("alive", memberOne.Kubeconfig())
	f.Eventually(f.condition("alive", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.unregister(secret)

	f.Eventually(f.condition("dead", flotillav1.ConditionReachable)).Should(Equal("False Timeout"))
	s, _ := f.pool.Snapshot("dead")
	f.Expect(s.Accepted).To(BeTrue(), "nothing speaks against it")
	_, err := f.pool.Member("dead")
	f.Expect(err).To(BeAssignableToTypeOf(&clusters.NotReadyError{}))
	dead.Restore(t)
	dead.Cut()
	f.Eventually(f.condition("dead", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.unregister(deadSecret)
}

func TestPool_joins_once_it_is_allowed_to(t *testing.T) {
	ctx := context.Background()
	config := memberOne.User(t, "newcomer")
	raw := clusterstest.Kubeconfig(t, config.Host, config.CAData, func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.Token, u.ClientCertificateData, u.ClientKeyData = "", config.CertData, config.KeyData
	})
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("allowed-later", raw)
	f.Eventually(f.condition("allowed-later", flotillav1.ConditionAPIsServed)).Should(Equal("False Forbidden"))
	f.Expect(f.state("allowed-later")()).To(Equal(clusters.StateIncompatible))
	f.Expect(f.condition("allowed-later", flotillav1.ConditionReachable)()).To(Equal("True ProbeSucceeded"))

	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "newcomer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "newcomer"}},
	}
	f.Expect(memberOne.Client.Create(ctx, binding)).To(Succeed())
	f.Eventually(f.condition("allowed-later", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.unregister(secret)
	f.Expect(memberOne.Client.Delete(ctx, binding)).To(Succeed())
}

func TestPool_recovers_a_member_that_panicked(t *testing.T) {
	f := startPool(t, hubCluster.Namespace(t))
	f.engaged.mu.Lock()
	f.engaged.panics = "panics"
	f.engaged.mu.Unlock()
	secret := f.register("panics", memberOne.Kubeconfig())
	f.Eventually(f.state("panics")).Should(Equal(clusters.StateUnreachable))
	f.Eventually(f.condition("panics", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count("panics") }).Should(Equal(2))
	f.unregister(secret)
}
