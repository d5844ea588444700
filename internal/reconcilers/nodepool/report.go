// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Numbers of status.status that a member's pool can have.
const (
	statusApplied  = 200
	statusPartly   = 206
	statusConflict = 409
	statusFailed   = 500
)

// report fills the status of a pool that is not being deleted. It is pure.
func report(pool *flotillav1.NodePool, found census, class classOutcome, now time.Time) {
	status := &pool.Status
	status.ObservedGeneration = pool.Generation
	status.NodePoolCounts = found.counts
	if !isHeld(pool) {
		// A pool that may write nothing needs no authority.
		status.OwnedKeys = ownedKeys(pool, found.recordedKeys)
	}
	status.Plan = nil
	if pool.Spec.DryRun {
		changes := sets.List(found.changes)
		status.Plan = &flotillav1.NodePoolPlan{Nodes: int32(found.changing), Changes: changes[:min(len(changes), maxPlanChanges)]}
	}
	set := setter(pool, now)
	applied := set(flotillav1.ConditionApplied, appliedCondition(pool, found))
	conflicts := set(flotillav1.ConditionNoConflicts, conflictsCondition(found))
	runtimeClass := set(flotillav1.ConditionRuntimeClassReady, metav1.Condition{Status: class.status, Reason: class.reason, Message: class.message})
	set(flotillav1.ConditionNodesHealthy, healthCondition(found))
	set(flotillav1.ConditionProgressing, progressCondition(pool, found))
	ready := set(flotillav1.ConditionReady, readyCondition(applied, runtimeClass, conflicts))
	if ready.Status == metav1.ConditionFalse && slices.Contains(flotillav1.StallingReasons(), ready.Reason) {
		set(flotillav1.ConditionStalled, metav1.Condition{Status: metav1.ConditionTrue, Reason: ready.Reason, Message: ready.Message})
	} else {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionStalled)
	}
	if !wantsUsage(pool) {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionRequestsKnown)
	} else if known := requestsCondition(found.usage); known != nil {
		set(flotillav1.ConditionRequestsKnown, *known)
	}
	if pool.Spec.Placement != nil {
		set(flotillav1.ConditionPlacementIgnored, metav1.Condition{
			Status: metav1.ConditionTrue, Reason: flotillav1.ReasonPlacementInMember,
			Message: "The field spec.placement only means something on the hub",
		})
	} else {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionPlacementIgnored)
	}
	status.Status = statusNumber(status.Conditions)
}

// reportDeletion fills the status of a pool whose nodes are being cleaned.
func reportDeletion(pool *flotillav1.NodePool, found census, now time.Time) {
	pool.Status.ObservedGeneration = pool.Generation
	set := setter(pool, now)
	message := fmt.Sprintf("%s still carry keys of the pool, which is being deleted", nodeCount(found.carriers))
	if found.carriers == 1 {
		message = "1 node still carries keys of the pool, which is being deleted"
	}
	progress := metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonCleaning, Message: message}
	if len(found.failing) > 0 {
		progress.Message = clean(fmt.Sprintf("Nodes cannot be patched (%s): %s", enumerate(found.failing), found.failure.message), 2*maxReason)
	}
	set(flotillav1.ConditionProgressing, progress)
	progress.Status = metav1.ConditionFalse
	if len(found.failing) > 0 {
		// Progressing keeps its reason, which is what lets the node controller clean.
		progress.Reason = found.failure.reason
	}
	set(flotillav1.ConditionReady, progress)
	apimeta.RemoveStatusCondition(&pool.Status.Conditions, flotillav1.ConditionStalled)
}

// setter returns a function that sets a condition at the observed generation and returns it.
func setter(pool *flotillav1.NodePool, now time.Time) func(string, metav1.Condition) metav1.Condition {
	return func(conditionType string, condition metav1.Condition) metav1.Condition {
		condition.Type = conditionType
		condition.ObservedGeneration = pool.Generation
		condition.LastTransitionTime = metav1.NewTime(now)
		apimeta.SetStatusCondition(&pool.Status.Conditions, condition)
		return condition
	}
}

// appliedCondition says whether every node carries what the spec says, conflicts aside; the worst reason first.
func appliedCondition(pool *flotillav1.NodePool, found census) metav1.Condition {
	not := func(reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	pending := nodeCount(len(found.pending))
	switch {
	case len(found.refused) > 0:
		return not(flotillav1.ReasonApplyFailed, "Keys that no pool may set: %s", enumerate(sets.List(found.refusedKeys)))
	case len(found.failing) > 0 && !isHeld(pool):
		return not(found.failure.reason, "Nodes cannot be patched (%s): %s", enumerate(found.failing), found.failure.message)
	case len(found.oversized) > 0:
		return not(flotillav1.ReasonRecordTooLarge, "The record would pass 64 KiB on %s", enumerate(found.oversized))
	case len(found.pending) > 0 && isHeld(pool):
		return not(heldReason(pool), "The spec asks for changes to %s", pending)
	case len(found.looping) > 0:
		return not(flotillav1.ReasonMembershipLoop, "By labels that they set (%s), pools %s make %s join and leave for ever, so nothing changes there: change labels or nodeSelector of one of them",
			enumerate(found.loopLabels), enumerate(sets.List(found.loopPools)), enumerate(found.looping))
	case len(found.fighting) > 0:
		return not(flotillav1.ReasonOwnershipFight, "Something keeps changing %s on %s", enumerate(sets.List(found.fightKeys)), enumerate(found.fighting))
	case len(found.waiting) > 0 && found.halted:
		return not(flotillav1.ReasonRolloutHalted, "Over %d%% of the nodes are not ready, so NoExecute taints wait on %s", haltPercent, nodeCount(len(found.waiting)))
	case len(found.pending) > 0:
		return not(flotillav1.ReasonNodesPending, "Changes to %s are on their way", pending)
	case found.counts.NodeCount == 0:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonNoMatchingNodes, Message: "No node belongs to the pool"}
	}
	return metav1.Condition{
		Status: metav1.ConditionTrue, Reason: flotillav1.ReasonAllNodesUpdated,
		Message: fmt.Sprintf("Nothing is left to do on %s", nodeCount(int(found.counts.NodeCount))),
	}
}

func conflictsCondition(found census) metav1.Condition {
	if len(found.conflicting) == 0 {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonNoConflict, Message: "Nothing else sets the keys of the pool"}
	}
	return metav1.Condition{
		Status: metav1.ConditionFalse, Reason: flotillav1.ReasonKeyConflict,
		Message: fmt.Sprintf("Something else sets %s on %s", enumerate(sets.List(found.conflictKeys)), enumerate(found.conflicting)),
	}
}

func healthCondition(found census) metav1.Condition {
	switch {
	case found.counts.NodeCount == 0:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonNoMatchingNodes, Message: "No node belongs to the pool"}
	case len(found.notReady) > 0:
		return metav1.Condition{
			Status: metav1.ConditionFalse, Reason: flotillav1.ReasonNodesNotReady,
			Message: fmt.Sprintf("%d of %s not ready: %s", len(found.notReady), nodeCount(int(found.counts.NodeCount)), enumerate(found.notReady)),
		}
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonAllNodesReady, Message: "All nodes are ready"}
}

func progressCondition(pool *flotillav1.NodePool, found census) metav1.Condition {
	switch {
	case isHeld(pool):
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: heldReason(pool), Message: "The pool changes no nodes"}
	case len(found.waiting) > 0 && found.halted:
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: flotillav1.ReasonRolloutHalted, Message: "Too many nodes are not ready"}
	case len(found.pending) > 0:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: flotillav1.ReasonNodesPending,
			Message: fmt.Sprintf("Changes to %s are on their way", nodeCount(len(found.pending))),
		}
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: flotillav1.ReasonSettled, Message: "Nothing is on its way"}
}

// readyCondition is the first condition that is not True. Nodes that are not ready are told by NodesHealthy alone: the
// pool has done its job on them.
func readyCondition(applied metav1.Condition, others ...metav1.Condition) metav1.Condition {
	worst := applied
	for _, condition := range others {
		if worst.Status == metav1.ConditionTrue && condition.Status != metav1.ConditionTrue {
			worst = condition
		}
	}
	return metav1.Condition{Status: worst.Status, Reason: worst.Reason, Message: worst.Message}
}

// heldReason says why a pool may change nothing.
func heldReason(pool *flotillav1.NodePool) string {
	if pool.Spec.Paused {
		return flotillav1.ReasonPaused
	}
	return flotillav1.ReasonDryRun
}

// statusNumber is the one place that makes the number from the conditions. A pool that is partly applied, because
// changes are on their way or held back, is 206: nothing is wrong, but not all is applied.
func statusNumber(conditions []metav1.Condition) int32 {
	number := int32(statusApplied)
	for _, condition := range conditions {
		if condition.Status == metav1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case flotillav1.ConditionApplied, flotillav1.ConditionNoConflicts, flotillav1.ConditionRuntimeClassReady:
			number = max(number, cmp.Or(numberOfReason[condition.Reason], statusPartly))
		}
	}
	return number
}

var numberOfReason = map[string]int32{
	flotillav1.ReasonApplyFailed:    statusFailed,
	flotillav1.ReasonForbidden:      statusFailed,
	flotillav1.ReasonRecordTooLarge: statusFailed,
	flotillav1.ReasonOwnershipFight: statusConflict,
	flotillav1.ReasonMembershipLoop: statusConflict,
	flotillav1.ReasonKeyConflict:    statusConflict,
	flotillav1.ReasonNameConflict:   statusConflict,

	flotillav1.ReasonSelectorNotExact: statusConflict,
}

// onlyProgress reports whether a status differs from the one before in nothing but how many nodes are done. A change of
// 1,000 nodes would otherwise be a write a second.
func onlyProgress(before, after *flotillav1.NodePool) bool {
	masked := func(pool *flotillav1.NodePool) *flotillav1.NodePoolStatus {
		status := pool.Status.DeepCopy()
		status.UpdatedNodes = 0
		for i := range status.Conditions {
			if reason := status.Conditions[i].Reason; reason == flotillav1.ReasonNodesPending || reason == flotillav1.ReasonCleaning {
				status.Conditions[i].Message = ""
			}
		}
		return status
	}
	return equality.Semantic.DeepEqual(masked(before), masked(after))
}
