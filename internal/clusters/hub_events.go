// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

// hubEventsPerSecond and hubEventBurst limit the events of one recorder about all objects of the hub together. Events
// and statuses share what the hub takes, and each event that waits would have a later status wait.
const hubEventsPerSecond, hubEventBurst = 2, 100

// LimitHubEvents returns a recorder for events about objects of the hub: one a second for an object, 50 at once, and a
// limit over all of them. What is over that is counted, and told a minute later by one event EventsSuppressed on the object.
func LimitHubEvents(next events.EventRecorder, clk clock.WithDelayedExecution) events.EventRecorder {
	h := &hubEvents{next: next, budgets: budgets[corev1.ObjectReference]{
		clock: clk, all: rate.NewLimiter(hubEventsPerSecond, hubEventBurst), of: map[corev1.ObjectReference]*budget{},
	}}
	h.budgets.tell = h.tellSuppressed
	return h
}

type hubEvents struct {
	next    events.EventRecorder
	budgets budgets[corev1.ObjectReference]
}

// Eventf implements events.EventRecorder. What an event is about is given as a reference.
func (h *hubEvents) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	if about, ok := regarding.(*corev1.ObjectReference); !ok || h.budgets.allow(*about) {
		h.next.Eventf(regarding, related, eventType, reason, action, note, args...)
	}
}

func (h *hubEvents) tellSuppressed(about corev1.ObjectReference, count int) {
	h.next.Eventf(&about, nil, corev1.EventTypeWarning, reasonEventsSuppressed, actionSuppress,
		"Suppressed %d events over the limits; the status is complete", count)
}
