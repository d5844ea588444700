// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// Kind adds to a kind how its numbers are rolled up.
type Kind struct {
	fleet.Kind
	// numbers returns what the status of a copy counts. It shares with the copy only what nobody changes.
	numbers func(copied fleet.Object) any
	// published returns the numbers of each entry that a hub object lists, as numbers does, by name of the cluster.
	published func(hubObject fleet.Object) map[string]any
	// shown returns the numbers that an entry shows: those of the copy, or else those that are published, or kept.
	shown func(seen *cluster, updated bool, published any) any
	// newSums returns empty totals.
	newSums func() sums
	// draft returns an object with a status of its own but for placedIn; the rest is shared.
	draft func(fleet.Object) fleet.Object
	// written returns an object that has nothing but what roll-up writes, which is shared: the status without placedIn.
	written func(fleet.Object) fleet.Object
}

// sums are the totals of a kind over the clusters of a hub object.
type sums interface {
	// count adds what a row counts so many times; -1 takes it away again.
	count(r *row, times int32)
	// fill writes everything in status that only this kind has: the list with its numbers, and the totals.
	fill(hubObject fleet.Object, listed []*row)
}

// Kinds are the kinds that are rolled up.
func Kinds() []Kind { return []Kind{redisKind, nodePoolKind} }

// updated reports whether the copy's own counts of what is updated are about the current generation.
func (c *cluster) updated(applied bool) bool {
	return c.Copy != nil && applied && c.Copy.ObservedGeneration >= c.Copy.Generation
}

// report fills in the whole status but placedIn, and returns how far a change is.
func report(kind Kind, hubObject fleet.Object, observed state, now time.Time) fleet.Wave {
	generation := hubObject.GetGeneration()
	wave := observed.wave(hubObject, now)
	observed.view.account(kind, hubObject, observed.stale, wave.Held, now)
	listed, unwell, omitted := observed.view.listing()
	status := hubObject.GetFleetStatus()
	counts := observed.view.ledger.counts
	status.ClusterCounts = &counts
	status.ClustersOmitted = omitted
	observed.view.ledger.sums.fill(hubObject, listed)

	conditions := fleet.Conditions(fleet.Facts{
		Generation:      generation,
		HasPlacement:    hubObject.GetPlacement() != nil,
		Deleting:        hubObject.GetDeletionTimestamp() != nil,
		Invalid:         observed.invalid,
		InvalidOverride: observed.invalidOverride,
		Entries:         unwell,
		Well:            int(counts.Desired) - len(unwell),
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
	for _, conditionType := range forPeople() {
		if apimeta.FindStatusCondition(conditions, conditionType) == nil {
			apimeta.RemoveStatusCondition(hubObject.GetConditions(), conditionType)
		}
	}
	return wave
}

// forPeople are the conditions that are there only while a person has something to do or to look at.
func forPeople() []string {
	return []string{flotillav1.ConditionStalled, flotillav1.ConditionRemovalHeld, flotillav1.ConditionCopyRecreated}
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
	turns := fleet.StandIns(s.view.template, s.view.done > 0, s.view.undecided > 0)
	turns = slices.AppendSeq(turns, maps.Values(s.view.open))
	return fleet.NewWaves(hubObject.GetPlacement(), s.view.template, s.view.chosen).Next(turns, now)
}

// progressingReason is the published reason of Progressing; empty when there is none yet.
func progressingReason(hubObject fleet.Object) string {
	if progressing := apimeta.FindStatusCondition(*hubObject.GetConditions(), flotillav1.ConditionProgressing); progressing != nil {
		return progressing.Reason
	}
	return ""
}
