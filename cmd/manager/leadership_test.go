// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestLeadership_ends_before_another_process_can_lead(t *testing.T) {
	hub := testenv.Start(t)
	l, err := newLeadership(hub.Config, metav1.NamespaceDefault)
	if err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	l.clock = clk
	expect := func(what string, want time.Duration) {
		t.Helper()
		if got := l.left(); got != want {
			t.Errorf("%s: %v are left, want %v", what, got, want)
		}
	}
	record := resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), LeaseDurationSeconds: int(leaseDuration / time.Second)}
	ctx, cancel := context.WithCancel(t.Context())
	expect("before it leads", 0)
	if err := l.Create(ctx, record); err != nil {
		t.Fatal(err)
	}
	full := retryPeriod + renewDeadline
	if full >= leaseDuration {
		t.Errorf("it may lead for %v with a Lease of %v", full, leaseDuration)
	}
	expect("after it was elected", full)
	clk.SetTime(clk.Now().Add(10 * time.Second))
	expect("10 s later", full-10*time.Second)
	if err := l.Update(ctx, record); err != nil {
		t.Fatal(err)
	}
	expect("renewed", full)

	// The wall clock alone leaps, as it does when a suspended machine goes on.
	clk.SetTime(clk.Now().Round(0).Add(time.Hour))
	expect("after an hour of suspension", 0)
	if err := l.Update(ctx, record); err != nil {
		t.Fatal(err)
	}
	expect("renewed after the suspension", full)

	clk.SetTime(clk.Now().Add(20 * time.Second))
	cancel()
	if err := l.Update(ctx, record); err == nil {
		t.Fatal("a renewal succeeded with a canceled context")
	}
	expect("a renewal that failed", full-20*time.Second)
	record.HolderIdentity = ""
	if err := l.Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	expect("released", 0)
}

// A Lease that was released tells the next process who has ended, also through the elector of client-go.
func TestLeadership_names_the_process_that_released_the_lease(t *testing.T) {
	hub := testenv.Start(t)
	namespace := hub.Namespace(t)
	lead := func(release bool) *leadership {
		t.Helper()
		l, err := newLeadership(hub.Config, namespace)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: l, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second, ReleaseOnCancel: release,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { cancel() }, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		elector.Run(ctx)
		return l
	}
	first := lead(true)
	if first.hasEnded("") || first.hasEnded(first.Identity()) {
		t.Error("the first process knows of one that has ended")
	}
	second := lead(false)
	if !second.hasEnded(first.Identity()) || second.hasEnded("another") {
		t.Error("the second process does not know that the first one has ended")
	}
	third := lead(true)
	if third.hasEnded(first.Identity()) || third.hasEnded(second.Identity()) {
		t.Error("the third process believes that one has ended which has not released the Lease")
	}
}
