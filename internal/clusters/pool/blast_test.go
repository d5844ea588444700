// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/controller"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// deadMembers returns kubeconfigs that lead to what is silent before the handshake, refuses, and is silent after it.
func deadMembers(t *testing.T) map[string][]byte {
	t.Helper()
	silent := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	silent.Hush(t)
	refusing := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	refusing.Refuse()
	stalled := &face{server: clusterstest.TLSServer(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))}
	return map[string][]byte{
		"silent": silent.Through(t, memberOne.Kubeconfig()), "refusing": refusing.Through(t, memberOne.Kubeconfig()),
		"stalled": stalled.kubeconfig(t),
	}
}

// A start with three dead members of ten, and only two places to sync in. A member that held up the others would do so for
// the 5 s of a probe at least, and in each attempt, unlike other work on the machine.
func TestPool_starts_as_fast_with_dead_members(t *testing.T) {
	const healthy = 7
	start := func(prefix string, dead map[string][]byte) time.Duration {
		f := &fixture{WithT: NewWithT(t), t: t, namespace: hubCluster.Namespace(t)}
		for name, kubeconfig := range dead {
			f.register(prefix+name, kubeconfig)
		}
		for i := range healthy {
			name := fmt.Sprint(prefix, i)
			f.register(name, newFace(t, memberOne, types.UID(name)).kubeconfig(t))
		}
		began := time.Now()
		f = startPool(t, f.namespace, func(c *Config) { c.Health, c.Slots = Health{}, 2 })
		f.Eventually(func() (ready int) {
			for _, s := range f.pool.Snapshots() {
				if s.State == clusters.StateReady {
					ready++
				}
			}
			return ready
		}).WithPolling(5 * time.Millisecond).Should(Equal(healthy))
		took := time.Since(began)
		for name := range dead {
			f.Expect(f.state(prefix+name)()).NotTo(Equal(clusters.StateReady), name)
		}
		f.stop()
		return took
	}
	start("warm-up-", nil)
	dead := deadMembers(t)
	for attempt := range 3 {
		alone := start(fmt.Sprint("alone-", attempt, "-"), nil)
		among := start(fmt.Sprint("among-", attempt, "-"), dead)
		t.Logf("%d members were ready after %s alone, and after %s among three dead ones", healthy, alone, among)
		if among <= alone*3/2+time.Second {
			return
		}
	}
	t.Error("three dead members delay the others: want at most half as long again, and a second")
}

// The worst that a member can do to the workers: every pass of it hangs.
func TestNewController_request_of_a_quiet_member_overtakes_those_of_a_noisy_one(t *testing.T) {
	const noisy, workers = 5000, 16
	g := NewWithT(t)
	mgr, err := mcmanager.New(memberOne.Config, nil, ctrl.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	members := clusterstest.NewDirectory()
	release, quietPassed := make(chan struct{}), make(chan struct{}, 1)
	var begun, ended atomic.Int32
	c, err := controller.New("fairness-test", mgr, members, workers, reconcile.TypedFunc[clusters.Request](
		func(ctx context.Context, req clusters.Request) (reconcile.Result, error) {
			if req.ClusterName == "quiet" {
				quietPassed <- struct{}{}
				return reconcile.Result{}, nil
			}
			begun.Add(1)
			defer ended.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return reconcile.Result{}, nil
		}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Watch(controller.OnChange(members, func(_ context.Context, clusterName multicluster.ClusterName) []clusters.Request {
		requests := []clusters.Request{clusterstest.Request(clusterName, "0")}
		for i := 1; clusterName == "noisy" && i < noisy; i++ {
			requests = append(requests, clusterstest.Request(clusterName, fmt.Sprint(i)))
		}
		return requests
	}))).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-done).To(Succeed())
	})

	members.Set(clusterstest.Ready("noisy"))
	const held = workers - workers/4
	g.Eventually(begun.Load).Should(BeEquivalentTo(held))
	g.Eventually(func() string {
		depth, _ := valueOf(t, `flotilla_queue_depth{cluster="noisy",controller="fairness-test"}`)
		return depth
	}).Should(Equal(fmt.Sprint(noisy - held)))
	members.Set(clusterstest.Ready("quiet"))
	clusterstest.Await(t, "the pass of the quiet member", quietPassed)
	g.Expect(ended.Load()).To(BeZero(), "it overtakes all that wait, although nothing of the noisy member ends")
	g.Expect(begun.Load()).To(BeEquivalentTo(held))

	close(release)
	g.Eventually(ended.Load).Should(BeEquivalentTo(noisy), "none of them is lost")
	members.Set(clusterstest.Ready("quiet"))
	clusterstest.Await(t, "the next pass of the quiet member", quietPassed)
}
