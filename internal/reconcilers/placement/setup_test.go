// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestSetup runs the controllers with real caches. It tests which events trigger which pass.
func TestSetup(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(context.Background())
	members := clusterstest.NewDirectory()
	mgr, err := mcmanager.New(hubServer.Config, nil, ctrl.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	member, err := ctrlcluster.New(memberServer.Config, func(o *ctrlcluster.Options) { o.Scheme = testenv.Scheme() })
	g.Expect(err).NotTo(HaveOccurred())
	members.Engage(eu1, member)
	g.Expect(Setup(mgr, members, fleet.NewTable(), Options{HubID: hubID, CreateNamespaces: true}, 2)).To(Succeed())

	var running []<-chan error
	for _, start := range []func(context.Context) error{mgr.Start, member.Start} {
		done := make(chan error, 1)
		go func() { done <- start(ctx) }()
		running = append(running, done)
	}
	t.Cleanup(func() {
		stop()
		for _, done := range running {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	g.Expect(mgr.Engage(ctx, eu1, member)).To(Succeed())

	f := &fixture{t: t, hub: hubServer.Client, member: memberServer.Client}
	redis := f.newRedis()
	eventually := func() AsyncAssertion {
		return g.Eventually(f.get).WithPolling(50 * time.Millisecond)
	}

	// A member that becomes ready gets its copy.
	members.Change(eu1, func(s *clusters.Snapshot) { *s = snapshotOf(eu1) })
	eventually().WithArguments(f.member, copyOf(redis)).Should(BeTrue())

	// A copy that is deleted in the member is created again.
	placed := copyOf(redis)
	f.get(f.member, placed)
	uid := placed.UID
	g.Expect(f.member.Delete(ctx, copyOf(redis))).To(Succeed())
	g.Eventually(func() bool {
		again := copyOf(redis)
		return f.get(f.member, again) && again.UID != uid
	}).Should(BeTrue())

	// A change in the member is reverted.
	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(7)) })
	g.Eventually(func() int32 {
		f.get(f.member, placed)
		return *placed.Spec.Replicas
	}).Should(Equal(int32(3)))

	// A copy without its annotations conflicts with the hub object until it is gone.
	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Annotations = nil })
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) })
	g.Expect(f.member.Delete(ctx, copyOf(redis))).To(Succeed())
	g.Eventually(func() bool {
		return f.get(f.member, placed) && fleet.IsOurs(placed, hubID) && *placed.Spec.Replicas == 2
	}).Should(BeTrue())

	// A ready copy is recorded before it changes, and until it is ready again.
	ready := func() {
		f.get(f.member, placed)
		placed.Status.ObservedGeneration = placed.Generation
		apimeta.SetStatusCondition(&placed.Status.Conditions, metav1.Condition{Type: flotillav1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Test"})
		g.Expect(f.member.Status().Update(ctx, placed)).To(Succeed())
		g.Eventually(func() bool {
			cached := copyOf(redis)
			return f.get(member.GetClient(), cached) && cached.ResourceVersion == placed.ResourceVersion
		}).Should(BeTrue())
	}
	ready()
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(4)) })
	g.Eventually(func() bool { return f.get(f.member, placed) && *placed.Spec.Replicas == 4 }).Should(BeTrue())
	trials := func() int {
		f.get(f.hub, redis)
		return len(redis.Status.Trials)
	}
	g.Expect(trials()).To(Equal(1))
	ready()
	g.Eventually(trials).Should(BeZero())

	// A deletion completes without any other event.
	g.Expect(f.hub.Delete(ctx, copyOf(redis))).To(Succeed())
	eventually().WithArguments(f.hub, copyOf(redis)).Should(BeFalse())
	g.Expect(f.get(f.member, copyOf(redis))).To(BeFalse())
}

func TestRequestsOfCopy(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache"}}
	requests := func() int { return len(f.r.requestsOfCopy(context.Background(), eu1, nil, redis)) }
	if requests() != 0 {
		t.Error("a member's own object wakes placement")
	}
	key := fleet.ObjectKey{Kind: "Redis", Object: client.ObjectKeyFromObject(redis)}
	f.r.Table.Set(key, eu1, fleet.Outcome{Reason: flotillav1.ReasonNameConflict})
	if requests() != 1 {
		t.Error("an object that is in the way does not wake placement when it changes")
	}
	f.r.Table.Set(key, eu1, fleet.Outcome{Generation: 1})
	if requests() != 1 {
		t.Error("an object that has replaced a copy does not wake placement when it changes")
	}
}
