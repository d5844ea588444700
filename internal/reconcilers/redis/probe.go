// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// snapshotPrefix begins the message of a readiness probe if the last snapshot failed, diskPrefix if the append-only
	// file cannot be written.
	snapshotPrefix = "SnapshotFailed: "
	// rewrittenMark is part of the message when there is room again.
	rewrittenMark = "the append-only file is being rewritten"
	// appendedMark is part of that message if the append-only file contains what the snapshot lacks.
	appendedMark = "the append-only file has all data"
	// probePrefix precedes the output of a readiness probe in the kubelet's event.
	probePrefix = "Readiness probe failed: "
	// probeSlack is longer than the consecutive failures that make a Pod unready, and their events, take.
	probeSlack = 30 * time.Second
)

// readProbe adds the output of the readiness probe to the diagnosis of a Pod whose server runs and is not Ready. The
// output is in events only, and events are not cached. Without the right to list them the output is unknown.
func readProbe(ctx context.Context, reader client.Reader, seen *corev1.Pod, view *pod) error {
	if !view.probed {
		return nil
	}
	var list eventsv1.EventList
	err := reader.List(ctx, &list, client.InNamespace(seen.Namespace), client.Limit(maxEvents),
		client.MatchingFields{"regarding.uid": string(seen.UID), "reason": "Unhealthy"})
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("listing events of Pod %q: %w", seen.Name, err)
	}
	view.diagnosis = explain(view.diagnosis, seen, list.Items)
	return nil
}

// probed reports whether the server of a Pod runs, has answered once, and fails its readiness probe.
func probed(seen *corev1.Pod, ready bool) bool {
	status := redisContainer(seen)
	return !ready && seen.DeletionTimestamp == nil && status != nil && status.State.Running != nil && status.Started != nil && *status.Started
}

// explain adds the last output of the readiness probe to a diagnosis.
func explain(known diagnosis, seen *corev1.Pod, events []eventsv1.Event) diagnosis {
	said := lastProbe(seen, events)
	switch {
	case said == "":
		if wasReady(seen) {
			known.unwritten = "its server was Ready and still runs, and no event of its readiness probe says why it is not Ready"
		}
	case strings.HasPrefix(said, emptyPrefix):
		message := strings.TrimSpace(strings.TrimPrefix(said, emptyPrefix))
		known = diagnosis{reason: flotillav1.ReasonPrimaryVolumeEmpty, why: flotillav1.ConditionEmptyPrimaryBlocked, broken: true, emptyVolume: message}
	case strings.HasPrefix(said, topologyPrefix):
		known = diagnosis{reason: flotillav1.ReasonTopologyUnknown, why: "its start waits: " + clause(strings.TrimPrefix(said, topologyPrefix)), broken: true}
	case strings.HasPrefix(said, waitPrefix):
		known = diagnosis{why: "its start waits: " + clause(strings.TrimPrefix(said, waitPrefix))}
	case strings.HasPrefix(said, diskPrefix+rewrittenMark):
		known = diagnosis{reason: flotillav1.ReasonDiskFull, why: "its volume was full, and its append-only file is rewritten because a restart could not read it; writes are taken; make more room if this lasts"}
		known.unwritten = "a restart could not read its append-only file, which is being rewritten"
	case strings.HasPrefix(said, diskPrefix):
		known = diagnosis{reason: flotillav1.ReasonDiskFull, why: "its server cannot write to its volume and refuses writes; make room or raise spec.storage.size: " + clause(answerOf(said))}
		known.unwritten = "its server holds data that it could not write to its volume"
	case strings.HasPrefix(said, snapshotPrefix):
		known = diagnosis{reason: flotillav1.ReasonSnapshotFailed, why: "its last snapshot failed and it refuses writes; its log says why, a full volume or too little memory to fork"}
		if !strings.Contains(said, appendedMark) {
			known.unwritten = "its server holds data that is in no snapshot"
		}
	case known.why == notReadyYet:
		known.why = "its readiness probe reports: " + clause(said)
	}
	return known
}

// answerOf returns the answer of the server that a message of the probe quotes.
func answerOf(said string) string {
	if _, answer, found := strings.Cut(said, "MISCONF "); found {
		return answer
	}
	return said
}

// lastProbe returns the output of the readiness probe that made the Pod unready, or "" if no event contains it. An
// older output may have another cause.
func lastProbe(seen *corev1.Pod, events []eventsv1.Event) string {
	status := redisContainer(seen)
	since := status.State.Running.StartedAt.Time
	if condition := podCondition(seen, corev1.PodReady); condition != nil && condition.LastTransitionTime.Add(-probeSlack).After(since) {
		since = condition.LastTransitionTime.Add(-probeSlack)
	}
	var last string
	for i := range events {
		// A kubelet that combines similar events adds a prefix to the message.
		_, said, found := strings.Cut(events[i].Note, probePrefix)
		if !found || !aboutServer(&events[i], seen) {
			continue
		}
		at := lastSeen(&events[i])
		if at.Before(since) || (at.Equal(since) && cannotPersist(last)) {
			continue
		}
		since, last = at, strings.TrimSpace(said)
	}
	return last
}

func cannotPersist(said string) bool {
	return strings.HasPrefix(said, diskPrefix) || strings.HasPrefix(said, snapshotPrefix)
}

// aboutServer ignores containers that others have added to the Pod.
func aboutServer(event *eventsv1.Event, seen *corev1.Pod) bool {
	path := event.Regarding.FieldPath
	return event.Regarding.UID == seen.UID && (path == "" || path == "spec.containers{"+containerName+"}")
}

// wasReady reports whether a Pod that is not Ready was Ready since its container started. Before that, its server has
// hardly any data that its volume lacks.
func wasReady(seen *corev1.Pod) bool {
	condition := podCondition(seen, corev1.PodReady)
	return condition != nil && condition.LastTransitionTime.After(redisContainer(seen).State.Running.StartedAt.Time)
}

// memoryRisk returns why the primary must not be replaced: its server has, or may have, data that exists nowhere else.
// Waiting loses nothing. Stopping the server does, because a server that cannot write exits without having written its
// data, by itself or killed after the grace period.
func memoryRisk(s *flotillav1.RedisSpec, p pod) *problem {
	if !keepsData(s) || !p.primary || p.unwritten == "" {
		return nil
	}
	reason := p.reason
	if reason == "" {
		reason = flotillav1.ReasonPrimaryNotReady
	}
	return &problem{reason, fmt.Sprintf("Pod %s is not replaced because %s; end that first, or delete the Pod to accept that it is lost", p.name, p.unwritten)}
}
