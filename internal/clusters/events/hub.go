// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
)

// hubEventsPerSecond and hubEventBurst limit the events of one recorder about all hub objects. Events and statuses share
// the capacity of the hub, so every pending event would delay later statuses.
const hubEventsPerSecond, hubEventBurst = 2, 100

// LimitHub returns a recorder for events about hub objects. It is limited to one event per second and object with bursts
// of 50, and limited over all objects. Events over the limit are counted, and reported a minute later by one event
// EventsSuppressed on the object.
func LimitHub(next events.EventRecorder, clk clock.WithDelayedExecution) events.EventRecorder {
	h := &hubEvents{next: next, budgets: budgets[corev1.ObjectReference]{
		clock: clk, all: rate.NewLimiter(hubEventsPerSecond, hubEventBurst), of: map[corev1.ObjectReference]*budget{},
	}}
	h.budgets.report = h.reportSuppressed
	return h
}

type hubEvents struct {
	next    events.EventRecorder
	budgets budgets[corev1.ObjectReference]
}

// Eventf implements events.EventRecorder. Only events whose regarding is an *ObjectReference are limited.
func (h *hubEvents) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	if about, ok := regarding.(*corev1.ObjectReference); !ok || h.budgets.allow(*about) {
		h.next.Eventf(regarding, related, eventType, reason, action, note, args...)
	}
}

func (h *hubEvents) reportSuppressed(about corev1.ObjectReference, count int) {
	h.next.Eventf(&about, nil, corev1.EventTypeWarning, reasonEventsSuppressed, actionSuppress,
		"Suppressed %d events over the limits; the status is complete", count)
}
