// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// Kind adds to a kind how its numbers are rolled up.
type Kind struct {
	fleet.Kind
	// numbers returns what the status of a copy counts, for fill. It shares with the copy only what nobody changes.
	numbers func(copied fleet.Object) any
	// written returns an object that has nothing but what roll-up writes, which is shared: the status without placedIn.
	written func(fleet.Object) fleet.Object
	// fill writes everything in status that only this kind has: the list with its numbers, and the totals.
	fill func(hubObject fleet.Object, rows []row)
}

// Kinds are the kinds that are rolled up.
func Kinds() []Kind { return []Kind{redisKind, nodePoolKind} }

// row is one cluster with the entry that was made from it.
type row struct {
	*cluster
	entry fleet.Entry
	// listed says that the entry is among those that the hub object lists.
	listed bool
}

// updated reports whether the copy's own counts of what is updated are about the current generation.
func (r row) updated() bool {
	return r.Copy != nil && r.entry.Applied && r.Copy.ObservedGeneration >= r.Copy.Generation
}

// report fills in the whole status but placedIn, and returns how far a change is.
func report(kind Kind, hubObject fleet.Object, observed state, now time.Time) fleet.Wave {
	generation := hubObject.GetGeneration()
	wave := observed.wave(hubObject, now)
	entries := make([]fleet.Entry, 0, len(observed.clusters))
	for _, seen := range observed.clusters {
		seen.Held = contains(wave.Held, seen.Name)
		entries = append(entries, fleet.EntryOf(seen.Observation, generation, now))
	}
	listed, omitted := fleet.Listed(entries)
	rows := make([]row, 0, len(entries))
	for i, entry := range entries {
		rows = append(rows, row{cluster: observed.clusters[i], entry: entry, listed: listed[entry.Name]})
		observed.clusters[i].told = &entry.ClusterStatus
	}
	status := hubObject.GetFleetStatus()
	status.ClusterCounts = fleet.CountEntries(entries)
	status.ClustersOmitted = omitted
	kind.fill(hubObject, rows)

	conditions := fleet.Conditions(fleet.Facts{
		Generation:      generation,
		HasPlacement:    hubObject.GetPlacement() != nil,
		Deleting:        hubObject.GetDeletionTimestamp() != nil,
		Invalid:         observed.invalid,
		InvalidOverride: observed.invalidOverride,
		Entries:         entries,
		Wave:            wave,
		Held:            fleet.RemovalHeld(hubObject),
		Confirmed:       fleet.RemovalConfirmed(hubObject),
		Halt:            haltOf(wave, hubObject),
		Recreated:       status.Recreated,
	})
	for _, condition := range conditions {
		condition.LastTransitionTime = *fleet.Moment(now)
		apimeta.SetStatusCondition(hubObject.GetConditions(), condition)
	}
	for _, conditionType := range []string{flotillav1.ConditionStalled, flotillav1.ConditionRemovalHeld, flotillav1.ConditionCopyRecreated} {
		if apimeta.FindStatusCondition(conditions, conditionType) == nil {
			apimeta.RemoveStatusCondition(hubObject.GetConditions(), conditionType)
		}
	}
	return wave
}

// haltOf says why the rollout has stopped, or nothing. Until every cluster is decided, a halt that is published holds.
func haltOf(wave fleet.Wave, hubObject fleet.Object) string {
	published := apimeta.FindStatusCondition(*hubObject.GetConditions(), flotillav1.ConditionProgressing)
	if wave.Undecided && published != nil && published.Reason == flotillav1.ReasonRolloutHalted {
		return published.Message
	}
	return wave.Halt()
}

// wave is how far a change is. Placement, which acts by the same rules, knows besides whom it has let go a moment ago.
func (s state) wave(hubObject fleet.Object, now time.Time) fleet.Wave {
	if s.invalid != nil {
		return fleet.Wave{}
	}
	var turns []fleet.Turn
	for _, seen := range s.clusters {
		if turn, ok := fleet.TurnOf(seen.Observation, hubObject.GetGeneration()); ok && seen.placed {
			turns = append(turns, turn)
		}
	}
	return fleet.NewWaves(hubObject.GetPlacement(), s.template, s.chosen).Next(turns, now)
}

// progressingReason is the published reason of Progressing; empty when there is none yet.
func progressingReason(hubObject fleet.Object) string {
	if progressing := apimeta.FindStatusCondition(*hubObject.GetConditions(), flotillav1.ConditionProgressing); progressing != nil {
		return progressing.Reason
	}
	return ""
}
