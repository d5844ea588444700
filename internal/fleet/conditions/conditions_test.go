// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func TestConditions(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus, reason string, change ...func(*fleet.Entry)) fleet.Entry {
		e := fleet.Entry{ClusterStatus: flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: reason}, Fate: fleet.FateApply, Visible: ready != "Unknown", Applied: ready != "Unknown"}
		for _, fn := range change {
			fn(&e)
		}
		return e
	}
	pending := func(e *fleet.Entry) { e.Applied, e.Progressing = false, true }
	leaving := func(e *fleet.Entry) { e.Fate = fleet.FateLeave }
	removing := func(e *fleet.Entry) { e.Fate, e.Progressing = fleet.FateRemove, true }
	held := func(e *fleet.Entry) { e.Fate, e.Reason = fleet.FateRemove, flotillav1.ReasonRemovalHeld }
	failed := func(e *fleet.Entry) { e.Applied, e.Failed = false, true }
	back := func(e *fleet.Entry) { e.Applied = false }
	reverted := &flotillav1.Change{Revert: &flotillav1.Revert{Message: "Not ready in time: eu-2"}}
	well, dead := entry("eu-1", "True", ""), entry("us-1", "Unknown", "ClusterUnreachable")
	tests := map[string]struct {
		facts Facts
		want  map[string]string
	}{
		"all well":          {Facts{Entries: []fleet.Entry{well}}, map[string]string{"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False Settled"}},
		"one dead":          {Facts{Entries: []fleet.Entry{well, dead}}, map[string]string{"Ready": "True AllReady", "FullyReady": "False ClustersUnknown", "Placed": "True AllPlaced", "ClustersReachable": "False ClustersUnknown", "Progressing": "False Settled"}},
		"all dead":          {Facts{Entries: []fleet.Entry{dead}}, map[string]string{"Ready": "Unknown ClustersUnknown", "FullyReady": "Unknown ClustersUnknown", "Placed": "Unknown ClustersUnknown", "ClustersReachable": "False ClustersUnknown", "Progressing": "False Settled"}},
		"one unwell":        {Facts{Entries: []fleet.Entry{well, entry("eu-2", "False", "ReplicasNotReady")}}, map[string]string{"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False Settled"}},
		"on its way":        {Facts{Entries: []fleet.Entry{entry("eu-2", "False", "Pending", pending)}}, map[string]string{"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "False PlacementPending", "ClustersReachable": "True AllReachable", "Progressing": "True PlacementPending"}},
		"conflict":          {Facts{Entries: []fleet.Entry{entry("eu-2", "False", "NameConflict", failed)}}, map[string]string{"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "False NameConflict", "ClustersReachable": "True AllReachable", "Progressing": "False Settled", "Stalled": "True NameConflict"}},
		"one leaving":       {Facts{Entries: []fleet.Entry{well, entry("eu-2", "True", "Leaving", leaving)}}, map[string]string{"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False Settled"}},
		"one being removed": {Facts{Entries: []fleet.Entry{well, entry("eu-2", "False", "Removing", removing)}}, map[string]string{"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "True Removing"}},
		"removal held while a rollout is halted": {Facts{Entries: []fleet.Entry{well, entry("eu-2", "False", "", held)}, Halt: "Not ready in time: eu-1; not changed: eu-3"}, map[string]string{
			"Ready": "True AllReady", "FullyReady": "True AllReady", "Placed": "True AllPlaced", "ClustersReachable": "True AllReachable", "Progressing": "False RolloutHalted", "RemovalHeld": "True BudgetExceeded", "Stalled": "True RemovalHeld",
		}},
		"taken back": {Facts{Entries: []fleet.Entry{well, entry("eu-2", "False", "Reverted", back)}, Reverted: reverted}, map[string]string{
			"Ready": "False ClustersNotReady", "FullyReady": "False ClustersNotReady", "Placed": "False RolloutReverted", "ClustersReachable": "True AllReachable", "Progressing": "False RolloutReverted", "Stalled": "True RolloutReverted",
		}},
		"none chosen":         {Facts{}, map[string]string{"Ready": "False NoClusterSelected", "FullyReady": "False NoClusterSelected", "Placed": "False NoClusterSelected", "ClustersReachable": "Unknown NoClusterSelected", "Progressing": "False Settled"}},
		"invalid":             {Facts{Invalid: errors.New("parsing"), Entries: []fleet.Entry{well}}, map[string]string{"Ready": "False PlacementInvalid", "FullyReady": "False PlacementInvalid", "Placed": "False PlacementInvalid", "ClustersReachable": "True AllReachable", "Progressing": "False Settled", "Stalled": "True PlacementInvalid"}},
		"deleted":             {Facts{Deleting: true, Entries: []fleet.Entry{entry("eu-2", "False", "Removing", removing)}}, map[string]string{"Ready": "False Deleting", "FullyReady": "False Deleting", "Placed": "False Deleting", "ClustersReachable": "True AllReachable", "Progressing": "True Removing"}},
		"deletion is held up": {Facts{Deleting: true, Entries: []fleet.Entry{entry("us-1", "Unknown", "ClusterUnreachable", removing)}}, map[string]string{"Ready": "False Deleting", "FullyReady": "False Deleting", "Placed": "False Deleting", "ClustersReachable": "False ClustersUnknown", "Progressing": "True Removing"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.facts.HasPlacement, tc.facts.Generation = true, 7
			got := map[string]string{}
			for _, condition := range Of(tc.facts) {
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
	none := Of(Facts{})
	if none[0].Reason != flotillav1.ReasonNoPlacement {
		t.Errorf("without placement Ready says %q", none[0].Reason)
	}
}

// TestConditions_Stalled is about everything that only a person can end, and what the conditions say first.
func TestConditions_Stalled(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus, reason string) fleet.Entry {
		return fleet.Entry{ClusterStatus: flotillav1.ClusterStatus{Name: name, Ready: ready, Reason: reason}, Fate: fleet.FateApply, Visible: true, Applied: ready == "True"}
	}
	well, unwell := entry("eu-1", "True", ""), entry("eu-2", "False", "ReplicasNotReady")
	conflict, held := entry("eu-3", "False", "NameConflict"), entry("eu-4", "False", "RemovalHeld")
	conflict.Failed, held.Fate = true, fleet.FateRemove
	reverted := &flotillav1.Change{Revert: &flotillav1.Revert{Message: "Not ready in time: eu-2"}}
	const halt, confirm = "Not ready in time: eu-2; not changed: eu-1", "emoval held until annotation flotilla.dev/confirm-removal is 7: eu-4"
	tests := map[string]struct {
		facts                  Facts
		reason, message, ready string
	}{
		"all is well":                   {facts: Facts{HasPlacement: true, Entries: []fleet.Entry{well}}, ready: "1 of 1 clusters are ready"},
		"a cluster is unwell":           {facts: Facts{HasPlacement: true, Entries: []fleet.Entry{unwell}}, ready: "Not ready: eu-2 (ReplicasNotReady)"},
		"none is chosen":                {facts: Facts{HasPlacement: true}, ready: "No registered cluster matches the placement"},
		"no placement":                  {facts: Facts{}, reason: "NoPlacement", message: "Set spec.placement to choose the clusters that get a copy", ready: "Set spec.placement to choose the clusters that get a copy"},
		"the placement":                 {facts: Facts{HasPlacement: true, Invalid: errors.New("parsing: no"), Entries: []fleet.Entry{well}}, reason: "PlacementInvalid", message: "Parsing: no", ready: "Parsing: no"},
		"a rollout":                     {facts: Facts{HasPlacement: true, Halt: halt, Entries: []fleet.Entry{well, unwell}}, reason: "RolloutHalted", message: "Rollout halted: not ready in time: eu-2; not changed: eu-1", ready: "Rollout halted: not ready in time: eu-2; not changed: eu-1; not ready: eu-2 (ReplicasNotReady)"},
		"a change that is taken back":   {facts: Facts{HasPlacement: true, Halt: halt, Reverted: reverted, Entries: []fleet.Entry{well, unwell}}, reason: "RolloutReverted", message: "Rollout reverted: not ready in time: eu-2", ready: "Rollout reverted: not ready in time: eu-2; not ready: eu-2 (ReplicasNotReady)"},
		"a removal":                     {facts: Facts{HasPlacement: true, Entries: []fleet.Entry{well, held}}, reason: "RemovalHeld", message: "R" + confirm, ready: "R" + confirm + "; 1 of 1 clusters are ready"},
		"a deletion":                    {facts: Facts{Deleting: true, Entries: []fleet.Entry{held}}, reason: "RemovalHeld", message: "R" + confirm, ready: "Copies are being removed from eu-4; r" + confirm},
		"an override":                   {facts: Facts{HasPlacement: true, InvalidOverride: errors.New("override 1: no"), Entries: []fleet.Entry{well}}, reason: "OverrideInvalid", message: "Override 1: no", ready: "Override 1: no; 1 of 1 clusters are ready"},
		"an object in its place":        {facts: Facts{HasPlacement: true, Entries: []fleet.Entry{conflict}}, reason: "NameConflict", message: "Not ready until a person acts: eu-3 (NameConflict)", ready: "Not ready: eu-3 (NameConflict)"},
		"a member that lost a password": {facts: Facts{HasPlacement: true, Entries: []fleet.Entry{well, entry("eu-5", "False", "AuthLost")}}, reason: "AuthLost", message: "Not ready until a person acts: eu-5 (AuthLost)", ready: "Not ready: eu-5 (AuthLost)"},
		"a removal, a rollout and a conflict": {
			facts: Facts{HasPlacement: true, Halt: halt, Entries: []fleet.Entry{conflict, held}}, reason: "RemovalHeld",
			message: "R" + confirm + "; rollout halted: not ready in time: eu-2; not changed: eu-1; not ready until a person acts: eu-3 (NameConflict)",
			ready:   "R" + confirm + "; rollout halted: not ready in time: eu-2; not changed: eu-1; not ready: eu-3 (NameConflict)",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.facts.Generation = 7
			found := Of(tc.facts)
			got := apimeta.FindStatusCondition(found, flotillav1.ConditionStalled)
			switch {
			case tc.reason == "" && got != nil:
				t.Errorf("%+v", got)
			case tc.reason != "" && (got == nil || got.Status != metav1.ConditionTrue || got.Reason != tc.reason || got.Message != tc.message || got.ObservedGeneration != 7):
				t.Errorf("%+v, want %s: %s", got, tc.reason, tc.message)
			}
			if ready := apimeta.FindStatusCondition(found, flotillav1.ConditionReady); ready.Message != tc.ready {
				t.Errorf("Ready says %q, want %q", ready.Message, tc.ready)
			}
		})
	}
}

// TestOf_any_entries says something about everything, whatever the entries are.
func TestOf_any_entries(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	pick := func() bool { return source.IntN(2) == 0 }
	for round := range 300 {
		facts := Facts{Generation: 1, HasPlacement: true, Deleting: source.IntN(9) == 0, Held: pick(), Confirmed: pick()}
		for i := range source.IntN(150) {
			entry := fleet.Entry{
				ClusterStatus: flotillav1.ClusterStatus{
					Name: fmt.Sprintf("c-%03d", i), Ready: []metav1.ConditionStatus{"True", "False", "Unknown"}[source.IntN(3)],
					Reason: []string{"", "NameConflict", "RemovalHeld", "Pending"}[source.IntN(4)],
				},
				Fate:    []fleet.Fate{fleet.FateApply, fleet.FateLeave, fleet.FateRemove}[source.IntN(3)],
				Visible: pick(), Applied: pick(), Progressing: pick(), Undecided: pick(),
			}
			entry.Failed = entry.Reason != "" && pick()
			facts.Entries = append(facts.Entries, entry)
		}
		for _, condition := range Of(facts) {
			if condition.Reason == "" || condition.Message == "" || condition.Status == "" || len(condition.Message) > 1000 {
				t.Fatalf("round %d: incomplete condition %+v", round, condition)
			}
		}
	}
}
