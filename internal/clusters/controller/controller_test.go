// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// passes counts passes by request.
type passes struct {
	mu     sync.Mutex
	counts map[string]int
}

func (p *passes) add(req clusters.Request) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[req.String()]++
	return p.counts[req.String()]
}

func (p *passes) of(request string) func() int {
	return func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.counts[request]
	}
}

func TestNewController(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	env := realMember
	namespace := env.Namespace(t)
	create := func(name string) {
		g.Expect(env.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: selected()}})).To(Succeed())
	}
	create("steady")
	create("failing")
	create("panicking")

	mgr, err := mcmanager.New(env.Config, nil, ctrl.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	g.Expect(err).NotTo(HaveOccurred())
	members := clusterstest.NewDirectory(clusterstest.Away("eu-1"), clusterstest.Ready("eu-2"))
	seen := &passes{counts: map[string]int{}}
	reconciler := reconcile.TypedFunc[clusters.Request](func(ctx context.Context, req clusters.Request) (reconcile.Result, error) {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Minute {
			t.Errorf("a pass without the deadline of a minute: %v %t", deadline, ok)
		}
		first := seen.add(req) == 1
		switch {
		case first && req.Name == "failing":
			return reconcile.Result{}, errors.New("not this time")
		case first && req.Name == "panicking":
			panic("a bug")
		}
		return reconcile.Result{}, nil
	})
	controller, err := New("controller-test", mgr, members, 4, reconciler)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(controller.MultiClusterWatch(Watch(&corev1.ConfigMap{}, ToSelf, nil))).To(Succeed())

	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)

	absent, present := syncedCluster(t, env, namespace), syncedCluster(t, env, namespace)
	g.Expect(mgr.Engage(ctx, "eu-1", absent)).To(Succeed())
	g.Expect(mgr.Engage(ctx, "eu-2", present)).To(Succeed())

	request := func(clusterName, name string) string {
		return "cluster://" + clusterName + "/" + namespace + "/" + name
	}
	g.Eventually(seen.of(request("eu-2", "steady"))).Should(Equal(1))
	g.Eventually(seen.of(request("eu-2", "failing"))).Should(Equal(2), "a failed pass is tried again")
	g.Eventually(seen.of(request("eu-2", "panicking"))).Should(Equal(2), "a panic is a failed pass")

	create("later")
	g.Eventually(seen.of(request("eu-2", "later"))).Should(Equal(1))
	for _, name := range []string{"steady", "failing", "panicking", "later"} {
		g.Expect(seen.of(request("eu-1", name))()).To(BeZero(), "a pass for a member that is away")
	}

	members.Set(clusterstest.Ready("eu-1"))
	absent.recover()
	for _, name := range []string{"steady", "failing", "panicking", "later"} {
		g.Eventually(seen.of(request("eu-1", name))).ShouldNot(BeZero(), "what was dropped is to come after the recovery")
	}
}

func TestNewController_needs_a_worker(t *testing.T) {
	if _, err := New("idle", nil, clusterstest.NewDirectory(), 0, nil); err == nil {
		t.Error("a controller without workers is made")
	}
}

func TestLogConstructor(t *testing.T) {
	var lines []string
	base := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	construct := logConstructor("redis", base)
	member, hub := clusterstest.Request("eu-1", "cart"), clusterstest.Request("", "cart")
	construct(&member).Info("Passing")
	construct(&hub).Info("Passing")
	construct(nil).Info("Starting EventSource")
	want := []string{
		`"level"=0 "msg"="Passing" "controller"="redis" "namespace"="default" "name"="cart" "cluster"="eu-1"`,
		`"level"=0 "msg"="Passing" "controller"="redis" "namespace"="default" "name"="cart"`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
