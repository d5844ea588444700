// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// What an engaged member without objects may add to the manager. Each watched kind has six goroutines; the member
// itself, its connection and its cache have three.
const (
	memberGoroutines = 70
	memberHeap       = 1 << 20
)

// TestManager_cost_of_an_engaged_member engages two, because the first one also costs what the manager makes only once.
func TestManager_cost_of_an_engaged_member(t *testing.T) {
	g, ctx := NewWithT(t), context.Background()
	hub, first, second := testenv.Start(t), testenv.Start(t), testenv.Start(t)
	namespace := hub.Namespace(t)
	startManager(t, hub, namespace)
	engage := func(name string, member *testenv.Cluster) cost {
		g.Expect(hub.Client.Create(ctx, testenv.SecretFor(member, namespace, name))).To(Succeed())
		g.Eventually(func() bool {
			object := &flotillav1.MemberCluster{}
			err := hub.Client.Get(ctx, client.ObjectKey{Name: name}, object)
			return err == nil && apimeta.IsStatusConditionTrue(object.Status.Conditions, flotillav1.ConditionReady)
		}, time.Minute, 50*time.Millisecond).Should(BeTrue())
		return settled(g)
	}
	before := engage("eu-1", first)
	after := engage("eu-2", second)
	t.Logf("%d goroutines and %d KiB of heap for a member", after.goroutines-before.goroutines, (after.heap-before.heap)>>10)
	g.Expect(after.goroutines - before.goroutines).To(BeNumerically("<=", memberGoroutines))
	g.Expect(after.heap - before.heap).To(BeNumerically("<=", memberHeap))
}

// startManager runs the manager with all its reconcilers on a hub until the end of the test.
func startManager(t *testing.T, hub *testenv.Cluster, namespace string) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, hub.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := loadConfig([]string{
		"--kubeconfig", kubeconfig, "--hub-id", "cost", "--registration-sources", namespace + ":flotilla", "--leader-election-enabled=false",
		"--metrics-bind-address", "0", "--health-bind-address", "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctrl.SetLogger(newLogger(cfg.Log, io.Discard))
	mgr, err := newManager(cfg, func(err error) { t.Errorf("the process ends: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
}

// cost is what the process holds.
type cost struct {
	goroutines int
	heap       int64
}

// settled measures once the number of goroutines has not changed for a second.
func settled(g Gomega) cost {
	goroutines, since := 0, time.Now()
	g.Eventually(func() bool {
		if now := runtime.NumGoroutine(); now != goroutines {
			goroutines, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	}, time.Minute, 50*time.Millisecond).Should(BeTrue())
	// What pools keep goes with the second collection.
	runtime.GC()
	runtime.GC()
	stats := &runtime.MemStats{}
	runtime.ReadMemStats(stats)
	return cost{goroutines: goroutines, heap: int64(stats.HeapAlloc)}
}
