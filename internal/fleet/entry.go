// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// MaxEntries is the number of clusters that a hub object lists.
const MaxEntries = 100

// Observation is the input for one entry.
type Observation struct {
	Name string
	Fate Fate
	// Member is nil if the name is not registered.
	Member *Member
	// Copy is nil if the member has no copy. It is meaningless while the member is not visible.
	Copy *Copy
	// Want is the effective spec for this member, and WantError the error if there is none.
	Want      Effective
	WantError error
	// Outcome is the result of placement's last pass.
	Outcome Outcome
	// Trial is the recorded trial of the cluster.
	Trial Trial
	// Held reports whether other clusters take the change first, and Kept whether it was taken back and Want is what the
	// cluster had before.
	Held, Kept bool
	// Previous is the published entry, if any.
	Previous *flotillav1.ClusterStatus
}

// Visible reports whether the member is visible.
func (o Observation) Visible() bool { return o.Member != nil && o.Member.Visible }

// Undecided reports whether this process does not know yet if the member is visible. The published entry of such a member
// is kept.
func (o Observation) Undecided() bool {
	return o.Member != nil && !o.Member.Visible && !o.Member.Decided
}

// removed reports whether the hub has removed the copy, even if it still exists. Such a copy does not count as missing.
func (o Observation) removed() bool {
	return o.Fate == FateRemove && o.Visible() && (o.Copy == nil || o.Copy.Deleting)
}

// Entry is the status entry of one cluster, with further fields for the conditions.
type Entry struct {
	flotillav1.ClusterStatus
	Fate Fate
	// Visible reports whether the entry describes the current state of the member, or that before this process started.
	Visible bool
	// Applied reports whether the current generation is applied to the copy.
	Applied bool
	// Failed reports whether the spec cannot be applied until something is changed.
	Failed bool
	// Progressing reports whether a change is in progress.
	Progressing bool
	// Undecided reports whether no pass of this process has processed this generation yet.
	Undecided bool
}

// EntryOf returns the entry of one cluster.
func EntryOf(o Observation, generation int64, now time.Time) Entry {
	entry := Entry{Fate: o.Fate, Undecided: o.Outcome.Generation != generation}
	switch {
	case o.Undecided() && o.Previous != nil:
		entry.ClusterStatus = *o.Previous.DeepCopy()
		entry.Visible = o.Previous.Ready != metav1.ConditionUnknown
		entry.Applied = o.Previous.ObservedGeneration == generation
		entry.Progressing = o.Previous.Reason == flotillav1.ReasonPending || o.Previous.Reason == flotillav1.ReasonRemoving
		return entry
	case o.Visible():
		entry.Visible = true
		entry.fromCopy(o, generation)
	default:
		entry.fromAbsence(o, generation)
	}
	entry.Name = o.Name
	entry.Since = sanitize.Moment(now)
	if o.Previous != nil {
		if o.Previous.Ready == entry.Ready && o.Previous.Since != nil {
			entry.Since = o.Previous.Since.DeepCopy()
		}
		if entry.ObservedGeneration == 0 && !o.removed() {
			entry.ObservedGeneration = min(o.Previous.ObservedGeneration, generation)
		}
	}
	return entry
}

// fromAbsence fills the entry of a member that is not visible.
func (e *Entry) fromAbsence(o Observation, generation int64) {
	e.Ready = metav1.ConditionUnknown
	e.Applied = o.Previous != nil && o.Previous.ObservedGeneration == generation
	if o.Member == nil {
		e.Reason, e.Message = flotillav1.ReasonNotRegistered, "No registration has this name"
		e.Applied = false
		return
	}
	e.Reason, e.Message = cmp.Or(o.Member.Reason, flotillav1.ReasonClusterNotReady), sanitize.Clip(o.Member.Message)
}

// fromCopy fills the entry of a visible member.
func (e *Entry) fromCopy(o Observation, generation int64) {
	e.Ready = metav1.ConditionFalse
	if o.Fate == FateRemove {
		e.Progressing = true
		e.Reason, e.Message = flotillav1.ReasonRemoving, "The copy is being removed"
		// After a restart a held removal stays held until a pass of this process decides.
		held := o.Outcome.Generation == 0 && o.Previous != nil && o.Previous.Reason == flotillav1.ReasonRemovalHeld
		switch {
		case held || o.Outcome.Reason == flotillav1.ReasonRemovalHeld && o.Outcome.Generation == generation:
			e.Progressing = false
			e.Reason, e.Message = flotillav1.ReasonRemovalHeld, "More copies would be removed at once than the budget allows"
		case o.Outcome.Reason != "" && o.Outcome.Generation == generation:
			e.Reason, e.Message = o.Outcome.Reason, sanitize.Clip(o.Outcome.Message)
		case !o.Member.Writable:
			e.Message = "The copy is removed when the member is no longer paused or frozen"
		case o.Copy != nil && o.Copy.Deleting:
			e.whileDeleting(o.Copy.Ready)
		}
		return
	}
	if o.Fate == FateApply && !e.carriesSpec(o, generation) {
		return
	}
	switch {
	case o.Copy == nil:
		e.pending("The copy does not exist")
	case o.Copy.Deleting:
		e.pending("The copy is being deleted in the member and will be created again")
	case o.Copy.ObservedGeneration < o.Copy.Generation:
		e.pending("The member has not observed this generation yet")
	default:
		if o.Fate == FateApply && !o.Kept {
			// A copy that is only kept still has the spec from when its cluster was last chosen, or before it was reverted.
			e.ObservedGeneration = generation
		}
		e.fromReady(o.Copy)
		e.whileReverted(o)
	}
	if o.Fate == FateLeave && e.Reason == "" {
		e.Reason, e.Message = flotillav1.ReasonLeaving, "The labels of the cluster no longer match; the copy is kept"
	}
}

// whileDeleting adds the reason why a copy that is being deleted in the member still exists, if the copy reports one.
func (e *Entry) whileDeleting(ready *metav1.Condition) {
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return
	}
	reason := sanitize.Reason(ready.Reason)
	e.Message = sanitize.Clip(fmt.Sprintf("The copy is being removed; in the member: %s: %s", reason, ready.Message))
	if reason == flotillav1.ReasonPaused || reason == flotillav1.ReasonDryRun {
		e.Reason = reason
	}
}

// carriesSpec reports whether the effective spec is applied to the copy, and fills the entry if it is not.
func (e *Entry) carriesSpec(o Observation, generation int64) bool {
	e.Applied = o.WantError == nil && o.Copy != nil && o.Copy.Hash == o.Want.Hash
	failed := o.Outcome.Reason != "" && o.Outcome.Generation == generation
	switch {
	case o.WantError != nil:
		e.Failed = true
		e.Reason, e.Message = flotillav1.ReasonOverrideInvalid, sanitize.Clip(text.Sentence(o.WantError))
	case failed:
		e.Applied, e.Failed = false, true
		e.Reason, e.Message = o.Outcome.Reason, sanitize.Clip(o.Outcome.Message)
	case !e.Applied && !o.Member.Writable:
		e.pending("The member is paused or frozen: nothing is written to it")
	case !e.Applied && o.Kept:
		e.pending("The change is being taken back")
	case !e.Applied && o.Held:
		e.pending("The change waits for its turn")
	case !e.Applied:
		e.pending("This generation is not applied to the copy yet")
	}
	return e.Applied
}

// whileReverted changes the entry of a copy that has what it had before a change that was taken back. It is not ready with
// the present spec, even if it is ready.
func (e *Entry) whileReverted(o Observation) {
	if o.Fate != FateApply || !o.Kept {
		return
	}
	e.Applied = false
	if e.Ready == metav1.ConditionTrue && !e.Progressing {
		e.Ready, e.Reason = metav1.ConditionFalse, flotillav1.ReasonReverted
		e.Message = "The copy is ready with the spec before the present one, which was taken back"
	}
}

func (e *Entry) pending(message string) {
	e.Reason, e.Message, e.Progressing = flotillav1.ReasonPending, message, true
}

func (e *Entry) fromReady(c *Copy) {
	if c.Ready == nil {
		e.pending("The copy has no Ready condition yet")
		return
	}
	e.Progressing = c.Progressing
	if c.Ready.Status == metav1.ConditionTrue {
		e.Ready = metav1.ConditionTrue
		return
	}
	e.Reason, e.Message = sanitize.Reason(c.Ready.Reason), sanitize.Clip(c.Ready.Message)
}

// Well reports whether a cluster is ready and needs no mention in conditions.
func (e Entry) Well() bool {
	return e.Fate == FateApply && e.Visible && e.Applied && !e.Failed && !e.Progressing && e.Ready == metav1.ConditionTrue
}

// CountInto adds the entry to the counts with a factor; -1 subtracts it again. The sum of ready, notReady and unknown is
// always desired.
func (e Entry) CountInto(counts *flotillav1.ClusterCounts, times int32) {
	counts.Desired += times
	switch e.Ready {
	case metav1.ConditionTrue:
		counts.Ready += times
	case metav1.ConditionFalse:
		counts.NotReady += times
	default:
		counts.Unknown += times
	}
	if e.Applied {
		counts.Applied += times
	}
}

// Listed returns the names of the entries that a hub object lists, and the number of omitted ones. Up to 100 entries are
// listed; those that are not ready take precedence.
func Listed(entries []Entry) (names map[string]bool, omitted int32) {
	kept := entries
	if len(entries) > MaxEntries {
		severity := map[metav1.ConditionStatus]int{metav1.ConditionFalse: 0, metav1.ConditionUnknown: 1, metav1.ConditionTrue: 2}
		kept = slices.Clone(entries)
		slices.SortStableFunc(kept, func(a, b Entry) int {
			return cmp.Or(cmp.Compare(severity[a.Ready], severity[b.Ready]), cmp.Compare(a.Name, b.Name))
		})
		kept = kept[:MaxEntries]
	}
	names = make(map[string]bool, len(kept))
	for _, entry := range kept {
		names[entry.Name] = true
	}
	return names, int32(len(entries) - len(kept))
}
