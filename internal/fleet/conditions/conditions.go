// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions contains what the status of a hub object says in its conditions: the entries of all clusters, and what
// a rollout and removals wait for, added up. Like package fleet it performs no I/O.
package conditions

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Facts is the input for the conditions of a hub object.
type Facts struct {
	Generation   int64
	HasPlacement bool
	Deleting     bool
	// Invalid is the error of an invalid placement, or nil.
	Invalid error
	// InvalidOverride is the error of an invalid override, or nil.
	InvalidOverride error
	// Entries are sorted by name. Those for which Well is true may be omitted and counted in Well instead.
	Entries []fleet.Entry
	Well    int
	// Wave is the progress of a rollout.
	Wave fleet.Wave
	// Held reports whether removals are published as held, and Confirmed whether they have been confirmed since then.
	Held, Confirmed bool
	// Halt explains why the rollout has stopped. It is empty if the rollout has not.
	Halt string
	// Reverted is the change that is taken back, or nil.
	Reverted *flotillav1.Change
	// Recreated lists the clusters whose copies were created again, sorted by name.
	Recreated []flotillav1.Recreation
	// Unused lists the clusters that overrides name and the placement does not choose, sorted by name.
	Unused []string
}

// Of returns all conditions of a hub object. Conditions that it does not return have to be removed.
func Of(facts Facts) []metav1.Condition {
	ready, reachable := facts.ready(), facts.reachable()
	conditions := []metav1.Condition{ready, fullyReady(ready, reachable), facts.placed(), reachable, facts.progressing()}
	if stalled, found := facts.stalled(); found {
		conditions = append(conditions, stalled)
	}
	if held := facts.removalHeld(); len(held) > 0 {
		conditions = append(conditions, metav1.Condition{
			Type: flotillav1.ConditionRemovalHeld, Status: metav1.ConditionTrue, Reason: flotillav1.ReasonBudgetExceeded,
			Message: "Removal " + facts.confirmation(),
		})
	}
	if recreated, found := facts.recreated(); found {
		conditions = append(conditions, recreated)
	}
	for i := range conditions {
		conditions[i].ObservedGeneration = facts.Generation
	}
	return conditions
}

// nothing returns the condition for an object without copies to report on, and whether this is such an object.
func (f Facts) nothing(conditionType string, status metav1.ConditionStatus) (metav1.Condition, bool) {
	condition := metav1.Condition{Type: conditionType, Status: status}
	switch {
	case f.Deleting:
		condition.Reason, condition.Message = flotillav1.ReasonDeleting, "The object is being deleted"
		if left := f.names(func(fleet.Entry) bool { return true }, plainName); len(left) > 0 {
			condition.Message = "Copies are being removed from " + text.Names(left)
		}
		if len(f.removalHeld()) > 0 {
			condition.Message += "; removal " + f.confirmation()
		}
	case f.Invalid != nil:
		condition.Reason, condition.Message = flotillav1.ReasonPlacementInvalid, sanitize.Clip(text.Sentence(f.Invalid))
	case !f.HasPlacement:
		condition.Reason, condition.Message = flotillav1.ReasonNoPlacement, "Set spec.placement to choose the clusters that get a copy"
	case f.Well == 0 && !slices.ContainsFunc(f.Entries, stays):
		condition.Reason, condition.Message = flotillav1.ReasonNoClusterSelected, "No registered cluster matches the placement"
	default:
		return condition, false
	}
	return condition, true
}

func (f Facts) ready() (condition metav1.Condition) {
	condition, nothing := f.nothing(flotillav1.ConditionReady, metav1.ConditionFalse)
	if nothing {
		return condition
	}
	defer func() { condition.Message = sentences(append(f.waits(), f.madeAgain()...), condition.Message) }()
	total := f.Well + f.count(stays)
	unwell := f.names(func(e fleet.Entry) bool { return stays(e) && e.Ready == metav1.ConditionFalse }, nameWithReason)
	unknown := f.names(func(e fleet.Entry) bool { return stays(e) && e.Ready == metav1.ConditionUnknown }, nameWithReason)
	switch {
	case len(unwell) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, flotillav1.ReasonClustersNotReady
		condition.Message = "Not ready: " + text.Names(unwell)
	case len(unknown) == total:
		condition.Status, condition.Reason = metav1.ConditionUnknown, flotillav1.ReasonClustersUnknown
		condition.Message = "Cannot be observed: " + text.Names(unknown)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, flotillav1.ReasonAllReady
		condition.Message = fmt.Sprintf("%d of %d clusters are ready", total-len(unknown), total)
		if len(unknown) > 0 {
			condition.Message += "; cannot be observed: " + text.Names(unknown)
		}
	}
	return condition
}

func (f Facts) reachable() metav1.Condition {
	condition, nothing := f.nothing(flotillav1.ConditionClustersReachable, metav1.ConditionUnknown)
	if nothing && f.Well+len(f.Entries) == 0 {
		return condition
	}
	unknown := f.names(func(e fleet.Entry) bool { return e.Ready == metav1.ConditionUnknown }, nameWithReason)
	if len(unknown) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, flotillav1.ReasonClustersUnknown
		condition.Message = "Cannot be observed: " + text.Names(unknown)
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, flotillav1.ReasonAllReachable
	condition.Message = fmt.Sprintf("All %d clusters can be observed", f.Well+len(f.Entries))
	return condition
}

func fullyReady(ready, reachable metav1.Condition) metav1.Condition {
	condition := ready
	if ready.Status == metav1.ConditionTrue && reachable.Status != metav1.ConditionTrue {
		condition = reachable
	}
	condition.Type = flotillav1.ConditionFullyReady
	return condition
}

func (f Facts) placed() metav1.Condition {
	condition, nothing := f.nothing(flotillav1.ConditionPlaced, metav1.ConditionFalse)
	if nothing {
		return condition
	}
	chosen := func(e fleet.Entry) bool { return e.Fate == fleet.FateApply && e.Visible }
	total := f.Well + f.count(chosen)
	failed := f.names(func(e fleet.Entry) bool { return chosen(e) && e.Failed }, nameWithReason)
	missing := f.names(func(e fleet.Entry) bool { return chosen(e) && !e.Applied && !e.Failed }, plainName)
	switch {
	case len(failed) > 0:
		condition.Reason = f.Entries[slices.IndexFunc(f.Entries, func(e fleet.Entry) bool { return chosen(e) && e.Failed })].Reason
		condition.Message = "Not placed: " + text.Names(failed)
	case len(missing) > 0 && f.Reverted != nil:
		condition.Reason, condition.Message = flotillav1.ReasonRolloutReverted, "The spec before is in "+text.Names(missing)
	case len(missing) > 0:
		condition.Reason = flotillav1.ReasonPlacementPending
		condition.Message = "Waiting for " + text.Names(missing)
	case f.Well == 0 && !slices.ContainsFunc(f.Entries, func(e fleet.Entry) bool { return e.Fate == fleet.FateApply }):
		condition.Reason, condition.Message = flotillav1.ReasonNoClusterSelected, "No registered cluster matches the placement"
	case total == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, flotillav1.ReasonClustersUnknown
		condition.Message = "No chosen cluster can be observed"
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, flotillav1.ReasonAllPlaced
		condition.Message = fmt.Sprintf("%d clusters have this generation", total)
		if total == 1 {
			condition.Message = "1 cluster has this generation"
		}
	}
	if leaving := f.names(func(e fleet.Entry) bool { return e.Fate == fleet.FateLeave }, plainName); len(leaving) > 0 {
		condition.Message += "; leaving, copy kept: " + text.Names(leaving)
	}
	removing := f.names(func(e fleet.Entry) bool { return e.Fate == fleet.FateRemove && !f.holds(e) }, plainName)
	if len(removing) > 0 {
		condition.Message += "; being removed: " + text.Names(removing)
	}
	if len(f.removalHeld()) > 0 {
		condition.Message += "; removal " + f.confirmation()
	}
	if len(f.Unused) > 0 {
		condition.Message += "; overrides name clusters that are not chosen: " + text.Names(f.Unused)
	}
	return condition
}

// removalHeld returns the clusters whose removal waits for a confirmation.
func (f Facts) removalHeld() []string { return f.names(f.holds, plainName) }

// holds reports whether the removal in a cluster waits for a confirmation. A held removal stays held until a pass for
// this generation decides otherwise; otherwise the copy could be removed unconfirmed when its cluster comes back.
func (f Facts) holds(e fleet.Entry) bool {
	return !f.Confirmed && e.Fate == fleet.FateRemove && (e.Reason == flotillav1.ReasonRemovalHeld || f.Held && e.Undecided)
}

// confirmation describes how to confirm the held removals, and in which clusters they are held.
func (f Facts) confirmation() string {
	return fmt.Sprintf("held until annotation %s is %d: %s", flotillav1.AnnotationConfirmRemoval, f.Generation, text.Names(f.removalHeld()))
}

func (f Facts) progressing() metav1.Condition {
	condition := metav1.Condition{Type: flotillav1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: flotillav1.ReasonSettled}
	moving := f.names(func(e fleet.Entry) bool {
		_, held := slices.BinarySearch(f.Wave.Held, e.Name)
		return e.Progressing && !held
	}, plainName)
	switch {
	case f.Reverted != nil:
		condition.Reason, condition.Message = flotillav1.ReasonRolloutReverted, f.revert()
		return condition
	case f.Halt != "":
		condition.Reason, condition.Message = flotillav1.ReasonRolloutHalted, f.Halt
		return condition
	case f.Wave.Paused:
		condition.Reason = flotillav1.ReasonRolloutPaused
		condition.Message = "Paused by spec.placement.rollout.paused; waiting: " + text.Names(f.Wave.Held)
		return condition
	case len(f.Wave.Held) > 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, flotillav1.ReasonRollingOut
		condition.Message = "Waiting for their turn: " + text.Names(f.Wave.Held)
		if len(moving) > 0 {
			condition.Message = fmt.Sprintf("In progress: %s; waiting for their turn: %s", text.Names(moving), text.Names(f.Wave.Held))
		}
		if len(f.Wave.Crowded) > 0 {
			condition.Message += "; enough other objects are changing in " + text.Names(f.Wave.Crowded)
		}
		return condition
	}
	if len(moving) == 0 {
		condition.Message = "No change is in progress"
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, flotillav1.ReasonPlacementPending
	condition.Message = "In progress: " + text.Names(moving)
	if !slices.ContainsFunc(f.Entries, func(e fleet.Entry) bool { return e.Progressing && e.Fate != fleet.FateRemove }) {
		condition.Reason = flotillav1.ReasonRemoving
	}
	return condition
}

// revert explains why the change is taken back, and how far that has come.
func (f Facts) revert() string {
	going := f.names(func(e fleet.Entry) bool { return e.Progressing && e.Fate == fleet.FateApply }, plainName)
	message := f.Reverted.Revert.Message + "; what the clusters had before"
	if len(going) > 0 {
		return message + " is being put back in " + text.Names(going)
	}
	return message + " is in place until the spec is edited or tried again"
}

// stays reports whether an entry counts for Ready. Copies that are being removed do not.
func stays(e fleet.Entry) bool { return e.Fate != fleet.FateRemove }

func plainName(e fleet.Entry) string { return e.Name }

func nameWithReason(e fleet.Entry) string {
	if e.Reason == "" {
		return e.Name
	}
	return e.Name + " (" + e.Reason + ")"
}

func (f Facts) count(keep func(fleet.Entry) bool) int {
	count := 0
	for _, entry := range f.Entries {
		if keep(entry) {
			count++
		}
	}
	return count
}

func (f Facts) names(keep func(fleet.Entry) bool, name func(fleet.Entry) string) []string {
	var names []string
	for _, entry := range f.Entries {
		if keep(entry) {
			names = append(names, name(entry))
		}
	}
	return names
}
