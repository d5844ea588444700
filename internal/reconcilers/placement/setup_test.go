// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestSetup runs the controllers with real caches: it is about what wakes which pass.
func TestSetup(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(context.Background())
	members := &directory{snapshots: map[string]clusters.Snapshot{}}
	mgr, err := mcmanager.New(hubServer.Config, nil, ctrl.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	member, err := ctrlcluster.New(memberServer.Config, func(o *ctrlcluster.Options) { o.Scheme = testenv.Scheme() })
	g.Expect(err).NotTo(HaveOccurred())
	members.member = member
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
	members.change(eu1, func(s *clusters.Snapshot) { *s = snapshotOf(eu1) })
	eventually().WithArguments(f.member, copyOf(redis)).Should(BeTrue())

	// A copy that is deleted in the member comes back.
	placed := copyOf(redis)
	f.get(f.member, placed)
	uid := placed.UID
	g.Expect(f.member.Delete(ctx, copyOf(redis))).To(Succeed())
	g.Eventually(func() bool {
		again := copyOf(redis)
		return f.get(f.member, again) && again.UID != uid
	}).Should(BeTrue())

	// A change in the member is put back.
	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(7)) })
	g.Eventually(func() int32 {
		f.get(f.member, placed)
		return *placed.Spec.Replicas
	}).Should(Equal(int32(3)))

	// A copy whose mark is taken away is in the way of itself, until it is gone.
	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Annotations = nil })
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) })
	g.Expect(f.member.Delete(ctx, copyOf(redis))).To(Succeed())
	g.Eventually(func() bool {
		return f.get(f.member, placed) && fleet.IsOurs(placed, hubID) && *placed.Spec.Replicas == 2
	}).Should(BeTrue())

	// A deletion goes through without anything else happening.
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
}
