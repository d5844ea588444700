// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func readyCopy(hash string) *Copy {
	return &Copy{Hash: hash, Generation: 2, ObservedGeneration: 2, Ready: &metav1.Condition{Status: metav1.ConditionTrue, Reason: "AllReplicasReady"}}
}

func TestEntryOf(t *testing.T) {
	visible := &Member{Name: "eu-1", Decided: true, Visible: true, Writable: true}
	away := &Member{Name: "eu-1", Decided: true, Reason: flotillav1.ReasonClusterUnreachable, Message: "gone"}
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	published := &flotillav1.ClusterStatus{Name: "eu-1", Ready: metav1.ConditionTrue, Since: &earlier, ObservedGeneration: 7}
	unready := readyCopy("h")
	unready.Ready = &metav1.Condition{Status: metav1.ConditionFalse, Reason: "ReplicasNotReady", Message: "1 of 3\x00 Pods"}
	behind := readyCopy("h")
	behind.ObservedGeneration = 1
	want, writable := Effective{Hash: "h"}, visible
	deleting := func(reason string) *Copy {
		c := readyCopy("h")
		c.Deleting, c.Ready = true, &metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: "says why"}
		return c
	}
	tests := map[string]struct {
		observation Observation
		ready       metav1.ConditionStatus
		reason      string
		since       time.Time
		observed    int64
		applied     bool
	}{
		"ready":              {Observation{Member: visible, Fate: FateApply, Copy: readyCopy("h"), Want: want}, "True", "", noon, 7, true},
		"since is kept":      {Observation{Member: visible, Fate: FateApply, Copy: readyCopy("h"), Want: want, Previous: published}, "True", "", earlier.Time, 7, true},
		"not ready":          {Observation{Member: visible, Fate: FateApply, Copy: unready, Want: want, Previous: published}, "False", "ReplicasNotReady", noon, 7, true},
		"another spec":       {Observation{Member: visible, Fate: FateApply, Copy: readyCopy("old"), Want: want}, "False", "Pending", noon, 0, false},
		"not observed":       {Observation{Member: visible, Fate: FateApply, Copy: behind, Want: want}, "False", "Pending", noon, 0, true},
		"no copy":            {Observation{Member: visible, Fate: FateApply, Want: want}, "False", "Pending", noon, 0, false},
		"name conflict":      {Observation{Member: visible, Fate: FateApply, Want: want, Outcome: Outcome{Generation: 7, Reason: "NameConflict"}}, "False", "NameConflict", noon, 0, false},
		"an old outcome":     {Observation{Member: visible, Fate: FateApply, Want: want, Outcome: Outcome{Generation: 6, Reason: "NameConflict"}}, "False", "Pending", noon, 0, false},
		"bad override":       {Observation{Member: visible, Fate: FateApply, Copy: readyCopy("h"), WantError: errors.New("override 1: no")}, "False", "OverrideInvalid", noon, 0, false},
		"unreachable":        {Observation{Member: away, Fate: FateApply, Want: want, Previous: published}, "Unknown", "ClusterUnreachable", noon, 7, true},
		"not registered":     {Observation{Fate: FateApply, Want: want}, "Unknown", "NotRegistered", noon, 0, false},
		"undecided":          {Observation{Member: &Member{}, Fate: FateApply, Want: want, Previous: published}, "True", "", earlier.Time, 7, true},
		"undecided and new":  {Observation{Member: &Member{}, Fate: FateApply, Want: want}, "Unknown", "ClusterNotReady", noon, 0, false},
		"leaving":            {Observation{Member: visible, Fate: FateLeave, Copy: readyCopy("old"), Want: want}, "True", "Leaving", noon, 0, false},
		"leaving since":      {Observation{Member: visible, Fate: FateLeave, Copy: readyCopy("old"), Want: want, Previous: &flotillav1.ClusterStatus{Ready: "True", Reason: "Leaving", Since: &earlier, ObservedGeneration: 5}}, "True", "Leaving", earlier.Time, 5, false},
		"removed, going":     {Observation{Member: writable, Fate: FateRemove, Copy: deleting("Cleaning"), Previous: published}, "False", "Removing", noon, 0, false},
		"removed, gone":      {Observation{Member: writable, Fate: FateRemove, Previous: published}, "False", "Removing", noon, 0, false},
		"gone":               {Observation{Member: visible, Fate: FateApply, Want: want, Previous: published}, "False", "Pending", noon, 7, false},
		"removal waits":      {Observation{Member: writable, Fate: FateRemove, Copy: deleting("Paused"), Outcome: Outcome{Generation: 7}}, "False", "Paused", noon, 0, false},
		"removal goes on":    {Observation{Member: writable, Fate: FateRemove, Copy: deleting("Cleaning"), Outcome: Outcome{Generation: 7}}, "False", "Removing", noon, 0, false},
		"being removed":      {Observation{Member: visible, Fate: FateRemove, Copy: readyCopy("h"), Want: want}, "False", "Removing", noon, 0, false},
		"removal is held":    {Observation{Member: visible, Fate: FateRemove, Copy: readyCopy("h"), Outcome: Outcome{Generation: 7, Reason: "RemovalHeld"}}, "False", "RemovalHeld", noon, 0, false},
		"removal was held":   {Observation{Member: visible, Fate: FateRemove, Copy: readyCopy("h"), Previous: &flotillav1.ClusterStatus{Ready: "False", Reason: "RemovalHeld", Since: &earlier}}, "False", "RemovalHeld", earlier.Time, 0, false},
		"held no longer":     {Observation{Member: visible, Fate: FateRemove, Copy: readyCopy("h"), Outcome: Outcome{Generation: 7}, Previous: &flotillav1.ClusterStatus{Ready: "False", Reason: "RemovalHeld", Since: &earlier}}, "False", "Removing", earlier.Time, 0, false},
		"removal is refused": {Observation{Member: visible, Fate: FateRemove, Copy: readyCopy("h"), Outcome: Outcome{Generation: 7, Reason: "ApplyFailed"}}, "False", "ApplyFailed", noon, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.observation.Name = "eu-1"
			entry := EntryOf(tc.observation, 7, noon)
			got := []any{entry.Name, entry.Ready, entry.Reason, entry.Since.UTC(), entry.ObservedGeneration, entry.Applied}
			want := []any{"eu-1", tc.ready, tc.reason, tc.since, tc.observed, tc.applied}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
			if strings.ContainsRune(entry.Message, 0) {
				t.Error("a control character got through")
			}
		})
	}
}

// TestEntry_counts_always_add_up is the promise that every watcher relies on.
func TestEntry_counts_always_add_up(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	pick := func(n int) bool { return source.IntN(n) == 0 }
	for round := range 300 {
		var entries []Entry
		for i := range source.IntN(150) {
			observation := Observation{
				Name: fmt.Sprintf("c-%03d", i), Fate: []Fate{FateApply, FateLeave, FateRemove}[source.IntN(3)], Want: Effective{Hash: "h"},
				Outcome: Outcome{Generation: int64(source.IntN(2)), Reason: []string{"", "NameConflict"}[source.IntN(2)]},
			}
			if !pick(5) {
				observation.Member = &Member{Decided: !pick(4), Visible: pick(2), Writable: pick(2)}
			}
			if !pick(4) {
				observation.Copy = readyCopy([]string{"h", "old"}[source.IntN(2)])
				if pick(3) {
					observation.Copy.Ready.Status = []metav1.ConditionStatus{"False", "Unknown", "Rubbish"}[source.IntN(3)]
				}
			}
			if pick(2) {
				observation.Previous = &flotillav1.ClusterStatus{Name: observation.Name, Ready: []metav1.ConditionStatus{"True", "False", "Unknown"}[source.IntN(3)]}
			}
			entries = append(entries, EntryOf(observation, 1, noon))
		}
		counts := flotillav1.ClusterCounts{}
		for _, entry := range entries {
			entry.CountInto(&counts, 1)
		}
		if counts.Desired != int32(len(entries)) || counts.Ready+counts.NotReady+counts.Unknown != counts.Desired || counts.Applied > counts.Desired {
			t.Fatalf("round %d: %d entries counted as %+v", round, len(entries), counts)
		}
		listed, omitted := Listed(entries)
		if len(listed)+int(omitted) != len(entries) || len(listed) > MaxEntries {
			t.Fatalf("round %d: %d listed and %d omitted of %d", round, len(listed), omitted, len(entries))
		}
	}
}

func TestListed_the_unwell_first(t *testing.T) {
	var entries []Entry
	for i := range 120 {
		entry := Entry{ClusterStatus: flotillav1.ClusterStatus{Name: fmt.Sprintf("c-%03d", i), Ready: metav1.ConditionTrue}}
		switch i {
		case 119:
			entry.Ready = metav1.ConditionFalse
		case 118:
			entry.Ready = metav1.ConditionUnknown
		}
		entries = append(entries, entry)
	}
	listed, omitted := Listed(entries)
	if !listed["c-119"] || !listed["c-118"] || !listed["c-000"] || listed["c-117"] || omitted != 20 {
		t.Errorf("listed %d, omitted %d", len(listed), omitted)
	}
}
