// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// longStop is how long a manager is stopped that goes on when another one has been at work for a while.
const longStop = 2 * time.Minute

// managerStopped stops the manager that leads in the middle of its work, again and again. In turns, it goes on after two
// minutes, when the one that takes over begins to write, and when that one has the hub's Lease and not the claims.
func (f *fence) managerStopped(t *testing.T) {
	stop := f.churn(t, "hub", f.hub)
	defer stop()
	leader, standby := f.pair(t, "hub")
	for i := range f.rounds {
		f.stopRound(t, i+1, leader, standby)
		leader.kill()
		holder := f.leaseHolder(t)
		leader, standby = standby, f.standBy(t, "hub")
		if !leader.running() || f.leaseHolder(t) != holder {
			t.Fatalf("round %d: %s leads no more when another one has been started", i+1, leader.name)
		}
	}
	f.quit(t, standby, leader)
}

func (f *fence) stopRound(t *testing.T, round int, leader, standby *contender) {
	t.Helper()
	g, writing := NewWithT(t), f.note(t)
	f.awaitWrites(t, writing, leader, time.Minute)
	stopped, watched := time.Now(), 20*time.Second
	leader.signal(t, syscall.SIGSTOP)
	switch round % 3 {
	case 1:
		f.awaitWrites(t, writing, standby, takeOver)
		f.wait(time.Until(stopped.Add(longStop)))
		// The elector gives up 50 s after it goes on.
		watched = time.Minute
	case 2:
		f.awaitFirst(t, writing, standby)
	default:
		g.Eventually(func() bool { return standby.says("uccessfully acquired lease", 0) }, takeOver, 50*time.Millisecond).Should(BeTrue(), "%s leads", standby.name)
	}
	asleep := time.Since(stopped)
	leader.signal(t, syscall.SIGCONT)
	continued := time.Now()
	everywhere := f.awaitWrites(t, writing, standby, takeOver)
	ended := "goes on without writing"
	select {
	case <-leader.ended:
		ended = fmt.Sprintf("ends after %v", time.Since(continued).Round(100*time.Millisecond))
	case <-time.After(watched):
	}
	// The other one is still at work, and what the first may have sent has arrived.
	f.awaitWrites(t, f.note(t), standby, time.Minute)
	shown := f.show(t, writing)
	for _, name := range f.registered() {
		g.Expect(shown.last[name]).To(Equal(standby.pid()), "%s writes to %s", standby.name, name)
	}
	f.report(t, row{
		attack: "stopped", round: round, took: everywhere.Sub(stopped), gap: shown.gap,
		told: fmt.Sprintf("%s, stopped for %v, %s; %s has taken over",
			leader.name, asleep.Round(100*time.Millisecond), ended, standby.name),
	}, shown.problems)
}

// leaseHolder is who leads on the hub.
func (f *fence) leaseHolder(t *testing.T) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := f.hub.Get(f.ctx, client.ObjectKey{Namespace: "flotilla-system", Name: "flotilla-manager"}, lease); err != nil {
		t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}
