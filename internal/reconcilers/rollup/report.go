// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/conditions"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

// Kind extends a kind with the roll-up of its numbers.
type Kind struct {
	fleet.Kind
	// numbers returns the counts in the status of a copy. It only shares immutable data with the copy.
	numbers func(copied fleet.Object) any
	// published returns the numbers of each listed entry of a hub object by cluster, in the form of numbers.
	published func(hubObject fleet.Object) map[string]any
	// shown returns the numbers of an entry: those of the copy or, without one, the published or kept ones.
	shown func(seen *cluster, updated bool, published any) any
	// newSums returns empty totals.
	newSums func() sums
	// draft returns an object with its own status except for placedIn; everything else is shared.
	draft func(fleet.Object) fleet.Object
	// written returns an object of the same name and UID that contains only the fields that roll-up writes, which are shared.
	written func(fleet.Object) fleet.Object
}

// named returns the name and the UID of an object as metadata.
func named(object fleet.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()}
}

// sums are the totals of a kind over the clusters of a hub object.
type sums interface {
	// count adds the numbers of a row with a factor; -1 subtracts them again.
	count(r *row, times int32)
	// fill writes all status fields that are specific to the kind: the list with its numbers, and the totals.
	fill(hubObject fleet.Object, listed []*row)
}

// Kinds are the kinds that are rolled up.
func Kinds() []Kind { return []Kind{redisKind, nodePoolKind} }

// updated reports whether the copy's counts of updated objects refer to the current generation.
func (c *cluster) updated(applied bool) bool {
	return c.Copy != nil && applied && c.Copy.ObservedGeneration >= c.Copy.Generation
}

// report fills in the whole status except for placedIn, and returns the progress of a rollout.
func report(kind Kind, hubObject fleet.Object, observed state, now time.Time) fleet.Wave {
	generation := hubObject.GetGeneration()
	wave := observed.wave(kind, hubObject, now)
	observed.view.account(kind, hubObject, observed.stale, wave.Held, now)
	listed, unwell, omitted := observed.view.listing()
	status := hubObject.GetFleetStatus()
	counts := observed.view.ledger.counts
	status.ClusterCounts = &counts
	status.ClustersOmitted = omitted
	if !wave.Undecided {
		status.Rollout = wave.Progress()
	}
	observed.view.ledger.sums.fill(hubObject, listed)

	found := conditions.Of(conditions.Facts{
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
		Halt:            haltOf(wave, unwell, hubObject),
		Reverted:        fleet.RevertedChange(hubObject),
		Recreated:       status.Recreated,
		Unused:          observed.view.unused(hubObject.GetPlacement()),
	})
	if progressing := apimeta.FindStatusCondition(found, flotillav1.ConditionProgressing); progressing.Reason == flotillav1.ReasonSettled {
		// The trials of clusters that are ready end a moment later, which would be a write of its own.
		status.Rollout = nil
	}
	for _, condition := range found {
		condition.LastTransitionTime = *sanitize.Moment(now)
		apimeta.SetStatusCondition(hubObject.GetConditions(), condition)
	}
	for _, conditionType := range forPeople() {
		if apimeta.FindStatusCondition(found, conditionType) == nil {
			apimeta.RemoveStatusCondition(hubObject.GetConditions(), conditionType)
		}
	}
	return wave
}

// forPeople returns the conditions that are present only while a person has something to do or to review.
func forPeople() []string {
	return []string{flotillav1.ConditionStalled, flotillav1.ConditionRemovalHeld, flotillav1.ConditionCopyRecreated}
}

// haltOf explains why the rollout has stopped, or returns "". A published halt stays until every cluster is decided.
func haltOf(wave fleet.Wave, unwell []fleet.Entry, hubObject fleet.Object) string {
	published := apimeta.FindStatusCondition(*hubObject.GetConditions(), flotillav1.ConditionProgressing)
	if wave.Undecided && published != nil && published.Reason == flotillav1.ReasonRolloutHalted {
		return published.Message
	}
	return conditions.Halt(wave, unwell)
}

// wave returns the progress of a rollout. Placement applies the same rules, and also knows the recently granted
// permits.
func (s state) wave(kind Kind, hubObject fleet.Object, now time.Time) fleet.Wave {
	if s.invalid != nil {
		return fleet.Wave{}
	}
	turns := fleet.StandIns(s.view.undecided > 0)
	turns = slices.AppendSeq(turns, maps.Values(s.view.open))
	waves := fleet.NewWaves(hubObject, s.view.template, s.view.chosen)
	waves.Done = s.view.done
	key := fleet.ObjectKey{Kind: kind.Name, Object: client.ObjectKeyFromObject(hubObject)}
	waves.Room = func(name string) bool { return s.slots.Free(key, name) }
	return waves.Next(turns, now)
}

// progressingReason returns the published reason of Progressing, or "" if there is none yet.
func progressingReason(hubObject fleet.Object) string {
	if progressing := apimeta.FindStatusCondition(*hubObject.GetConditions(), flotillav1.ConditionProgressing); progressing != nil {
		return progressing.Reason
	}
	return ""
}
