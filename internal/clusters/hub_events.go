// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

const (
	// hubEventsPerSecond and hubEventBurst limit the events of one recorder about all objects of the hub together. Events
	// and statuses share what the hub takes, and each event that waits would have a later status wait.
	hubEventsPerSecond, hubEventBurst = 2, 100
	// budgetsKept is up to how many budgets are kept before those are dropped that nothing was taken from for long.
	budgetsKept = 1000
)

// LimitHubEvents returns a recorder for events about objects of the hub: one a second for an object, 50 at once, and a
// limit over all of them. What is over that is counted, and told a minute later by one event EventsSuppressed on the object.
func LimitHubEvents(next events.EventRecorder, clk clock.WithDelayedExecution) events.EventRecorder {
	return &hubEvents{next: next, clock: clk, all: rate.NewLimiter(hubEventsPerSecond, hubEventBurst), budgets: map[corev1.ObjectReference]*budget{}}
}

type hubEvents struct {
	next  events.EventRecorder
	clock clock.WithDelayedExecution
	all   *rate.Limiter

	mu      sync.Mutex
	budgets map[corev1.ObjectReference]*budget
}

// Eventf implements events.EventRecorder. What an event is about is given as a reference.
func (h *hubEvents) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	if about, ok := regarding.(*corev1.ObjectReference); !ok || h.allow(*about) {
		h.next.Eventf(regarding, related, eventType, reason, action, note, args...)
	}
}

// allow takes an event from the budgets. The first one over them starts the timer that tells how many there were.
func (h *hubEvents) allow(about corev1.ObjectReference) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	b, found := h.budgets[about]
	if !found {
		h.tidyLocked()
		b = &budget{limiter: rate.NewLimiter(eventsPerSecond, eventBurst)}
		h.budgets[about] = b
	}
	if b.limiter.AllowN(now, 1) && h.all.AllowN(now, 1) {
		return true
	}
	b.suppressed++
	if b.suppressed == 1 {
		h.clock.AfterFunc(suppressedDelay, func() { h.tellSuppressed(about, b) })
	}
	return false
}

// tidyLocked drops budgets that are as new ones would be. It needs mu.
func (h *hubEvents) tidyLocked() {
	if len(h.budgets) < budgetsKept {
		return
	}
	now := h.clock.Now()
	for about, b := range h.budgets {
		if b.suppressed == 0 && b.limiter.TokensAt(now) >= eventBurst {
			delete(h.budgets, about)
		}
	}
}

// tellSuppressed comes at most once a minute for an object, so it needs no budget.
func (h *hubEvents) tellSuppressed(about corev1.ObjectReference, b *budget) {
	h.mu.Lock()
	count := b.suppressed
	b.suppressed = 0
	h.mu.Unlock()
	h.next.Eventf(&about, nil, corev1.EventTypeWarning, reasonEventsSuppressed, actionSuppress,
		"Suppressed %d events over the limits; the status is complete", count)
}
