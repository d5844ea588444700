// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestLimitHubEvents_counts_what_is_over_the_limits(t *testing.T) {
	recorder, clk := events.NewFakeRecorder(10_000), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limited := LimitHub(recorder, clk)
	recorded := func() []string {
		var all []string
		for len(recorder.Events) > 0 {
			all = append(all, <-recorder.Events)
		}
		return all
	}
	object := func(n int) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: "Redis", Namespace: "shop", Name: fmt.Sprint("cache-", n)}
	}
	say := func(n, times int) {
		for range times {
			limited.Eventf(object(n), nil, corev1.EventTypeNormal, "Placed", "Place", "eu-1: Placed generation %d", 1)
		}
	}

	say(1, eventBurst+30)
	if got := recorded(); len(got) != eventBurst || got[0] != "Normal Placed eu-1: Placed generation 1" {
		t.Errorf("%d events of one object, beginning with %q", len(got), got[0])
	}
	say(2, eventBurst)
	say(3, 20)
	if got := len(recorded()); got != hubEventBurst-eventBurst {
		t.Errorf("%d events of others after the first %d: there is a limit over all", got, eventBurst)
	}
	clk.Step(suppressedDelay)
	want := map[string]bool{
		"Warning EventsSuppressed Suppressed 30 events over the limits; the status is complete": true,
		"Warning EventsSuppressed Suppressed 20 events over the limits; the status is complete": true,
	}
	got := recorded()
	for _, event := range got {
		if !want[event] {
			t.Errorf("recorded %q", event)
		}
	}
	if len(got) != len(want) {
		t.Errorf("recorded %q", got)
	}

	// With time there is room again, and nothing is counted twice.
	say(1, 10)
	if got := len(recorded()); got != 10 {
		t.Errorf("%d of 10 events a minute later", got)
	}
	clk.Step(suppressedDelay)
	if got := recorded(); len(got) != 0 {
		t.Errorf("recorded %q", got)
	}
}

func TestLimitHubEvents_forgets_objects(t *testing.T) {
	recorder, clk := events.NewFakeRecorder(10), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limited := LimitHub(recorder, clk).(*hubEvents)
	for n := range 5 * budgetsKept {
		clk.Step(2 * time.Second)
		limited.budgets.allow(corev1.ObjectReference{Name: fmt.Sprint(n)})
	}
	if kept := len(limited.budgets.of); kept > budgetsKept {
		t.Errorf("%d budgets are kept", kept)
	}
}
