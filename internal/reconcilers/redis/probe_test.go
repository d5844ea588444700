// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

func TestExplain(t *testing.T) {
	const unwritten = true
	started := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	unready := started.Add(time.Hour)
	said := func(at time.Time, message string) eventsv1.Event {
		return eventsv1.Event{
			Regarding: corev1.ObjectReference{UID: "pod", FieldPath: "spec.containers{redis}"},
			Note:      "Readiness probe failed: " + message + "\n", DeprecatedLastTimestamp: metav1.NewTime(at),
		}
	}
	elsewhere := said(unready, "DiskFull: of a proxy")
	elsewhere.Regarding.FieldPath = "spec.containers{proxy}"
	combined := said(unready, "DiskFull: full")
	combined.Note = "(combined from similar events): " + combined.Note
	full := "DiskFull: the append-only file cannot be written, so writes are refused: " + appendFailed
	for name, tc := range map[string]struct {
		events     []eventsv1.Event
		neverReady bool
		reason     string
		unwritten  bool
		says       string
	}{
		"a full disk":      {events: []eventsv1.Event{said(unready, full)}, reason: flotillav1.ReasonDiskFull, unwritten: unwritten, says: "No space left on device"},
		"a combined event": {events: []eventsv1.Event{combined}, reason: flotillav1.ReasonDiskFull, unwritten: unwritten},
		"a file that is rewritten": {
			events: []eventsv1.Event{said(unready, "DiskFull: the append-only file is being rewritten, because ...")}, reason: flotillav1.ReasonDiskFull, unwritten: unwritten,
			says: "a restart could not read it",
		},
		"a failed snapshot":              {events: []eventsv1.Event{said(unready, "SnapshotFailed: the last snapshot failed, so writes are refused: "+snapshotFailed)}, reason: flotillav1.ReasonSnapshotFailed, unwritten: unwritten, says: "last snapshot failed"},
		"a failed snapshot, all in AOF":  {events: []eventsv1.Event{said(unready, "SnapshotFailed: the last snapshot failed, so writes are refused; the append-only file has all data: "+snapshotFailed)}, reason: flotillav1.ReasonSnapshotFailed, says: "last snapshot failed"},
		"loading":                        {events: []eventsv1.Event{said(unready, "The server is loading its data")}, says: "its readiness probe reports: The server is loading its data"},
		"the last of several":            {events: []eventsv1.Event{said(unready.Add(time.Minute), full), said(unready, "The server does not answer")}, reason: flotillav1.ReasonDiskFull, unwritten: unwritten},
		"the worse of one second":        {events: []eventsv1.Event{said(unready, full), said(unready, "The server does not answer")}, reason: flotillav1.ReasonDiskFull, unwritten: unwritten},
		"no event":                       {unwritten: unwritten, says: notReadyYet},
		"no event, and was never Ready":  {neverReady: true, says: notReadyYet},
		"a full disk, never Ready":       {events: []eventsv1.Event{said(unready, full)}, neverReady: true, reason: flotillav1.ReasonDiskFull, unwritten: unwritten},
		"an event of an earlier failure": {events: []eventsv1.Event{said(unready.Add(-time.Minute), "The server is loading its data")}, unwritten: unwritten, says: notReadyYet},
		"an event of an earlier server":  {events: []eventsv1.Event{said(started.Add(-time.Second), full)}, neverReady: true, says: notReadyYet},
		"an event of another container":  {events: []eventsv1.Event{elsewhere}, unwritten: unwritten, says: notReadyYet},
	} {
		t.Run(name, func(t *testing.T) {
			changed := unready
			if tc.neverReady {
				changed = started.Add(-time.Second)
			}
			seen := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}, Status: corev1.PodStatus{
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(changed)}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: containerName, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
				}},
			}}
			if !probed(seen, false) {
				t.Fatal("the Pod counts as one whose probe does not fail")
			}
			got := explain(diagnose(seen), seen, tc.events)
			if got.reason != tc.reason || (got.unwritten != "") != tc.unwritten || !strings.Contains(got.why, tc.says) || got.broken {
				t.Errorf("explained %+v, want reason %q, unwritten data: %t, saying %q", got, tc.reason, tc.unwritten, tc.says)
			}
		})
	}
}

func TestMemoryRisk(t *testing.T) {
	inMemory := func(s *flotillav1.RedisSpec) { s.Persistence.Mode = flotillav1.RedisPersistenceNone }
	for name, tc := range map[string]struct {
		mutate    func(*flotillav1.RedisSpec)
		ordinal   int32
		unwritten string
		want      bool
	}{
		"the primary":                 {ordinal: 0, unwritten: "x", want: true},
		"the primary has written all": {ordinal: 0},
		"a replica":                   {ordinal: 1, unwritten: "x"},
		"nothing is kept anyway":      {mutate: inMemory, ordinal: 0, unwritten: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redisOf()
			if tc.mutate != nil {
				redis = redisOf(tc.mutate)
			}
			s := redisspec.Of(redis)
			p := pod{name: "web", ordinal: tc.ordinal, primary: tc.ordinal == 0}
			p.unwritten = tc.unwritten
			if got := memoryRisk(&s, p); (got != nil) != tc.want || (got != nil && got.reason == "") {
				t.Errorf("the risk is %v, want one: %t", got, tc.want)
			}
		})
	}
}
