// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
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
		for _, condition := range Conditions(Facts{Generation: 1, HasPlacement: true, Entries: entries}) {
			if condition.Reason == "" || condition.Message == "" || condition.Status == "" || len(condition.Message) > 1000 {
				t.Fatalf("round %d: incomplete condition %+v", round, condition)
			}
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

func TestConditions(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus, reason string, change ...func(*Entry)) Entry {
		e := Entry{ClusterStatus: flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: reason}, Fate: FateApply, Visible: ready != "Unknown", Applied: ready != "Unknown"}
		for _, fn := range change {
			fn(&e)
		}
		return e
	}
	pending := func(e *Entry) { e.Applied, e.Progressing = false, true }
	leaving := func(e *Entry) { e.Fate = FateLeave }
	removing := func(e *Entry) { e.Fate, e.Progressing = FateRemove, true }
	held := func(e *Entry) { e.Fate, e.Reason = FateRemove, flotillav1.ReasonRemovalHeld }
	failed := func(e *Entry) { e.Applied, e.Failed = false, true }
	back := func(e *Entry) { e.Applied = false }
	reverted := &flotillav1.Change{Revert: &flotillav1.Revert{Message: "Not ready in time: eu-2"}}
	well, dead := entry("eu-1", "True", ""), entry("us-1", "Unknown", "ClusterUnreachable")
	tests := map[string]struct {
		facts Facts
		want  map[string]string
	}{
		"all well":          {Facts{Entries: []Entry{well}}, map[string]string{"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False Settled"}},
		"one dead":          {Facts{Entries: []Entry{well, dead}}, map[string]string{"Ready": "True AllReady", "FullyReady": "False ClustersUnknown", "Placed": "True AllPlaced", "ClustersReachable": "False ClustersUnknown", "Progressing": "False Settled"}},
		"all dead":          {Facts{Entries: []Entry{dead}}, map[string]string{"Ready": "Unknown ClustersUnknown", "FullyReady": "Unknown ClustersUnknown", "Placed": "Unknown ClustersUnknown", "ClustersReachable": "False ClustersUnknown", "Progressing": "False Settled"}},
		"one unwell":        {Facts{Entries: []Entry{well, entry("eu-2", "False", "ReplicasNotReady")}}, map[string]string{"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False Settled"}},
		"on its way":        {Facts{Entries: []Entry{entry("eu-2", "False", "Pending", pending)}}, map[string]string{"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "False PlacementPending", "ClustersReachable": "True AllReachable", "Progressing": "True PlacementPending"}},
		"conflict":          {Facts{Entries: []Entry{entry("eu-2", "False", "NameConflict", failed)}}, map[string]string{"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "False NameConflict", "ClustersReachable": "True AllReachable", "Progressing": "False Settled", "Stalled": "True NameConflict"}},
		"one leaving":       {Facts{Entries: []Entry{well, entry("eu-2", "True", "Leaving", leaving)}}, map[string]string{"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False Settled"}},
		"one being removed": {Facts{Entries: []Entry{well, entry("eu-2", "False", "Removing", removing)}}, map[string]string{"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "True Removing"}},
		"removal held while a rollout is halted": {Facts{Entries: []Entry{well, entry("eu-2", "False", "", held)}, Halt: "Not ready in time: eu-1; not changed: eu-3"}, map[string]string{
			"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False RolloutHalted", "RemovalHeld": "True BudgetExceeded", "Stalled": "True RemovalHeld",
		}},
		"taken back": {Facts{Entries: []Entry{well, entry("eu-2", "False", "Reverted", back)}, Reverted: reverted}, map[string]string{
			"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "False RolloutReverted", "ClustersReachable": "True AllReachable", "Progressing": "False RolloutReverted", "Stalled": "True RolloutReverted",
		}},
		"none chosen":         {Facts{}, map[string]string{"Ready": "False NoClusterSelected", "FullyReady": "False NoClusterSelected", "Placed": "False NoClusterSelected", "ClustersReachable": "Unknown NoClusterSelected", "Progressing": "False Settled"}},
		"invalid":             {Facts{Invalid: errors.New("parsing"), Entries: []Entry{well}}, map[string]string{"Ready": "False PlacementInvalid", "FullyReady": "False PlacementInvalid", "Placed": "False PlacementInvalid", "ClustersReachable": "True AllReachable", "Progressing": "False Settled", "Stalled": "True PlacementInvalid"}},
		"deleted":             {Facts{Deleting: true, Entries: []Entry{entry("eu-2", "False", "Removing", removing)}}, map[string]string{"Ready": "False Deleting", "FullyReady": "False Deleting", "Placed": "False Deleting", "ClustersReachable": "True AllReachable", "Progressing": "True Removing"}},
		"deletion is held up": {Facts{Deleting: true, Entries: []Entry{entry("us-1", "Unknown", "ClusterUnreachable", removing)}}, map[string]string{"Ready": "False Deleting", "FullyReady": "False Deleting", "Placed": "False Deleting", "ClustersReachable": "False ClustersUnknown", "Progressing": "True Removing"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.facts.HasPlacement, tc.facts.Generation = true, 7
			got := map[string]string{}
			for _, condition := range Conditions(tc.facts) {
				got[condition.Type] = string(condition.Status) + " " + condition.Reason
				if condition.ObservedGeneration != 7 {
					t.Errorf("%s is about generation %d", condition.Type, condition.ObservedGeneration)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
	none := Conditions(Facts{})
	if none[0].Reason != flotillav1.ReasonNoPlacement {
		t.Errorf("without placement Ready says %q", none[0].Reason)
	}
}

// TestConditions_Stalled is about everything that only a person can end, and what the conditions say first.
func TestConditions_Stalled(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus, reason string) Entry {
		return Entry{ClusterStatus: flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: reason}, Fate: FateApply, Visible: true, Applied: ready == "True"}
	}
	well, unwell := entry("eu-1", "True", ""), entry("eu-2", "False", "ReplicasNotReady")
	conflict, held := entry("eu-3", "False", "NameConflict"), entry("eu-4", "False", "RemovalHeld")
	conflict.Failed, held.Fate = true, FateRemove
	reverted := &flotillav1.Change{Revert: &flotillav1.Revert{Message: "Not ready in time: eu-2"}}
	const halt, confirm = "Not ready in time: eu-2; not changed: eu-1", "emoval held until annotation flotilla.dev/confirm-removal is 7: eu-4"
	tests := map[string]struct {
		facts                  Facts
		reason, message, ready string
	}{
		"all is well":                   {facts: Facts{HasPlacement: true, Entries: []Entry{well}}, ready: "1 of 1 clusters are ready"},
		"a cluster is unwell":           {facts: Facts{HasPlacement: true, Entries: []Entry{unwell}}, ready: "Not ready: eu-2 (ReplicasNotReady)"},
		"none is chosen":                {facts: Facts{HasPlacement: true}, ready: "No registered cluster matches the placement"},
		"no placement":                  {facts: Facts{}, reason: "NoPlacement", message: "Set spec.placement to choose the clusters that get a copy", ready: "Set spec.placement to choose the clusters that get a copy"},
		"the placement":                 {facts: Facts{HasPlacement: true, Invalid: errors.New("parsing: no"), Entries: []Entry{well}}, reason: "PlacementInvalid", message: "Parsing: no", ready: "Parsing: no"},
		"a rollout":                     {facts: Facts{HasPlacement: true, Halt: halt, Entries: []Entry{well, unwell}}, reason: "RolloutHalted", message: "Rollout halted: not ready in time: eu-2; not changed: eu-1", ready: "Rollout halted: not ready in time: eu-2; not changed: eu-1; not ready: eu-2 (ReplicasNotReady)"},
		"a change that is taken back":   {facts: Facts{HasPlacement: true, Halt: halt, Reverted: reverted, Entries: []Entry{well, unwell}}, reason: "RolloutReverted", message: "Rollout reverted: not ready in time: eu-2", ready: "Rollout reverted: not ready in time: eu-2; not ready: eu-2 (ReplicasNotReady)"},
		"a removal":                     {facts: Facts{HasPlacement: true, Entries: []Entry{well, held}}, reason: "RemovalHeld", message: "R" + confirm, ready: "R" + confirm + "; 1 of 1 clusters are ready"},
		"a deletion":                    {facts: Facts{Deleting: true, Entries: []Entry{held}}, reason: "RemovalHeld", message: "R" + confirm, ready: "Copies are being removed from eu-4; r" + confirm},
		"an override":                   {facts: Facts{HasPlacement: true, InvalidOverride: errors.New("override 1: no"), Entries: []Entry{well}}, reason: "OverrideInvalid", message: "Override 1: no", ready: "Override 1: no; 1 of 1 clusters are ready"},
		"an object in its place":        {facts: Facts{HasPlacement: true, Entries: []Entry{conflict}}, reason: "NameConflict", message: "Not ready until a person acts: eu-3 (NameConflict)", ready: "Not ready: eu-3 (NameConflict)"},
		"a member that lost a password": {facts: Facts{HasPlacement: true, Entries: []Entry{well, entry("eu-5", "False", "AuthLost")}}, reason: "AuthLost", message: "Not ready until a person acts: eu-5 (AuthLost)", ready: "Not ready: eu-5 (AuthLost)"},
		"a removal, a rollout and a conflict": {
			facts: Facts{HasPlacement: true, Halt: halt, Entries: []Entry{conflict, held}}, reason: "RemovalHeld",
			message: "R" + confirm + "; rollout halted: not ready in time: eu-2; not changed: eu-1; not ready until a person acts: eu-3 (NameConflict)",
			ready:   "R" + confirm + "; rollout halted: not ready in time: eu-2; not changed: eu-1; not ready: eu-3 (NameConflict)",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.facts.Generation = 7
			conditions := Conditions(tc.facts)
			got := apimeta.FindStatusCondition(conditions, flotillav1.ConditionStalled)
			switch {
			case tc.reason == "" && got != nil:
				t.Errorf("%+v", got)
			case tc.reason != "" && (got == nil || got.Status != metav1.ConditionTrue || got.Reason != tc.reason || got.Message != tc.message || got.ObservedGeneration != 7):
				t.Errorf("%+v, want %s: %s", got, tc.reason, tc.message)
			}
			if ready := apimeta.FindStatusCondition(conditions, flotillav1.ConditionReady); ready.Message != tc.ready {
				t.Errorf("Ready says %q, want %q", ready.Message, tc.ready)
			}
		})
	}
}

func TestJoin(t *testing.T) {
	if got := Join([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Error(got)
	}
}

func TestClip(t *testing.T) {
	tests := map[string]string{
		"plain":                    "plain",
		"two\nlines\t":             "two lines",
		"bell\x07 and \xff\xfe":    "bell and",
		"right-to-left \u202e end": "right-to-left end",
	}
	for text, want := range tests {
		if got := Clip(text); got != want {
			t.Errorf("Clip(%q) = %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{strings.Repeat("é", 4000), strings.Repeat("x", 4000), strings.Repeat("\xf0\x9f\x92", 500)} {
		if got := Clip(text); len(got) > maxMessageBytes || !utf8.ValidString(got) {
			t.Errorf("a long text became %d bytes, valid %v", len(got), utf8.ValidString(got))
		}
	}
}

func TestSums(t *testing.T) {
	if Sum(math.MaxInt32, 5) != math.MaxInt32 || Sum(-7, 5) != 5 || Sum(2, 3) != 5 {
		t.Error("counters must not overflow or go below zero")
	}
	list := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("-1Gi"), "": resource.MustParse("1"), "a\nb": resource.MustParse("1")}
	sum := AddResources(Resources(list), list)
	if sum.Cpu().String() != "8" || !sum.Memory().IsZero() || len(sum) != 2 {
		t.Errorf("sum is %v", sum)
	}
	for i := range 100 {
		list[corev1.ResourceName(fmt.Sprintf("example.com/r-%02d", i))] = resource.MustParse("1")
	}
	if got := Resources(list); len(got) != maxResourceNames {
		t.Errorf("%d resource names, want %d", len(got), maxResourceNames)
	}
	groups := AddGroups([]flotillav1.NodeGroup{{Name: "b", NodeCount: 1}}, []flotillav1.NodeGroup{{Name: "b", NodeCount: 2, ReadyNodes: -1}, {Name: "a"}, {Name: strings.Repeat("x", 64)}})
	if diff := cmp.Diff([]flotillav1.NodeGroup{{Name: "a"}, {Name: "b", NodeCount: 3}}, groups); diff != "" {
		t.Error(diff)
	}
}

func TestWhen(t *testing.T) {
	if When(metav1.Time{}) != nil || When(metav1.NewTime(time.Unix(1<<40, 0))) != nil {
		t.Error("a time that cannot be written must not be published")
	}
	if got := When(metav1.NewTime(noon.Add(time.Millisecond))); got == nil || !got.Time.Equal(noon) {
		t.Errorf("got %v", got)
	}
}
