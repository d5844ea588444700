// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
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
	members.Set(snapshotOf(eu1, clusters.StateReady, true))
	mgr, err := mcmanager.New(hubServer.Config, nil, ctrl.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	member, err := ctrlcluster.New(memberServer.Config, func(o *ctrlcluster.Options) { o.Scheme = testenv.Scheme() })
	g.Expect(err).NotTo(HaveOccurred())
	members.Engage(eu1, member)
	table := fleet.NewTable()
	g.Expect(Setup(mgr, members, table, hubID, clock.RealClock{}, 2)).To(Succeed())

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
		if left := series(t, ctrlmetrics.Registry, "flotilla_objects"); len(left) > 0 {
			t.Errorf("a manager that does not run any more shows %v", left)
		}
	})
	g.Expect(mgr.Engage(ctx, eu1, member)).To(Succeed())

	f := &fixture{t: t, r: &Reconciler{Kind: redisKind}, hub: hubServer.Client, member: memberServer.Client}
	redis := f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
	eventually := func(what string, condition func() bool) {
		t.Helper()
		g.Eventually(func() bool {
			f.read(f.hub, redis)
			return condition()
		}).WithPolling(50*time.Millisecond).Should(BeTrue(), what)
	}
	entryIs := func(ready metav1.ConditionStatus, reason string) func() bool {
		return func() bool {
			entries := redis.Status.Clusters
			return len(entries) == 1 && entries[0].Ready == ready && entries[0].Reason == reason
		}
	}
	eventually("a new hub object is reported", entryIs("False", flotillav1.ReasonPending))
	placed := &flotillav1.Redis{}
	f.place(redis, placed)
	status(f, f.member, placed, observed)
	eventually("a change in the member arrives", entryIs("True", ""))
	eventually("it is counted", func() bool { return series(t, ctrlmetrics.Registry, "flotilla_objects")["Redis Ready"] >= 1 })
	status(f, f.member, placed, func(r *flotillav1.Redis) { r.Status.ReadyReplicas = 1 })
	eventually("a number arrives", func() bool { return redis.Status.ReadyReplicas == 1 })
	members.Set(snapshotOf(eu1, clusters.StateUnreachable, true))
	eventually("an outage is reported", entryIs("Unknown", flotillav1.ReasonClusterUnreachable))
	members.Set(snapshotOf(eu1, clusters.StateReady, true))
	eventually("its end is reported", entryIs("True", ""))
	key := fleet.ObjectKey{Kind: "Redis"}
	key.Object.Namespace, key.Object.Name = redis.Namespace, redis.Name
	table.Set(key, eu1, fleet.Outcome{Generation: redis.Generation, Reason: flotillav1.ReasonApplyFailed, Message: "Refused"})
	eventually("an outcome of placement is reported", entryIs("False", flotillav1.ReasonApplyFailed))

	memberCluster := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: eu1},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: eu1}},
	}
	f.create(f.hub, memberCluster)
	t.Cleanup(func() { _ = f.hub.Delete(context.Background(), memberCluster) })
	eventually("the member is counted", func() bool {
		f.read(f.hub, memberCluster)
		return memberCluster.Status.Summary != nil && memberCluster.Status.Summary.Redises.Ready >= 1 &&
			series(t, ctrlmetrics.Registry, "flotilla_cluster_objects")["eu-1 Redis Ready"] >= 1
	})
}

func TestNodeChanged(t *testing.T) {
	node := func(version string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}
	if nodeChanged(node("1", "True"), node("2", "True")) {
		t.Error("a heartbeat wakes the summary")
	}
	if !nodeChanged(node("1", "True"), node("2", "Unknown")) {
		t.Error("a node that is lost does not wake the summary")
	}
}
