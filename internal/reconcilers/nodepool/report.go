// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// Values of status.status that a pool in a member can have.
const (
	statusApplied  = 200
	statusPartly   = 206
	statusConflict = 409
	statusFailed   = 500
)

const (
	// maxPlanChanges is the limit of the CRD.
	maxPlanChanges = 50
	// maxReason is how much of an error of an API server a condition shows.
	maxReason = 256
)

// report fills the status of a pool that is not being deleted. It is pure.
func report(pool *flotillav1.NodePool, found ownership.Survey, class classOutcome, now time.Time) {
	status := &pool.Status
	status.ObservedGeneration = pool.Generation
	status.NodePoolCounts = found.Counts
	if !ownership.ReadOnly(pool) {
		// A read-only pool needs no authority.
		status.OwnedKeys = ownership.OwnedKeys(pool, found.RecordedKeys)
	}
	status.Plan = nil
	if pool.Spec.DryRun {
		changes := sets.List(found.Changes)
		status.Plan = &flotillav1.NodePoolPlan{Nodes: int32(len(found.Pending)), Changes: changes[:min(len(changes), maxPlanChanges)]}
	}
	set := setter(pool, now)
	applied := set(flotillav1.ConditionApplied, appliedCondition(pool, found))
	conflicts := set(flotillav1.ConditionNoConflicts, conflictsCondition(found))
	runtimeClass := set(flotillav1.ConditionRuntimeClassReady, class.condition)
	set(flotillav1.ConditionNodesHealthy, healthCondition(found))
	set(flotillav1.ConditionProgressing, progressCondition(pool, found))
	ready := set(flotillav1.ConditionReady, readyCondition(applied, runtimeClass, conflicts))
	if ready.Status == metav1.ConditionFalse && slices.Contains(flotillav1.StallingReasons(), ready.Reason) {
		set(flotillav1.ConditionStalled, isTrue(ready.Reason, ready.Message))
	} else {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionStalled)
	}
	if found.Usage == nil {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionRequestsKnown)
	} else if known := requestsCondition(found.Usage); known.Status != "" {
		set(flotillav1.ConditionRequestsKnown, known)
	}
	if pool.Spec.Placement != nil {
		set(flotillav1.ConditionPlacementIgnored, isTrue(flotillav1.ReasonPlacementInMember, "The field spec.placement only means something on the hub"))
	} else {
		apimeta.RemoveStatusCondition(&status.Conditions, flotillav1.ConditionPlacementIgnored)
	}
	status.Status = statusNumber(status.Conditions)
}

// reportDeletion fills the status of a pool whose nodes are being cleaned.
func reportDeletion(pool *flotillav1.NodePool, found ownership.Survey, now time.Time) {
	pool.Status.ObservedGeneration = pool.Generation
	set := setter(pool, now)
	message := fmt.Sprintf("%s still carry keys of the pool, which is being deleted", nodeCount(found.Carriers))
	if found.Carriers == 1 {
		message = "1 node still carries keys of the pool, which is being deleted"
	}
	reason := flotillav1.ReasonCleaning
	if len(found.Failing) > 0 {
		reason = found.Failure.Reason
		message = text.Clause(fmt.Sprintf("Nodes cannot be patched (%s): %s", enumerate(found.Failing), found.Failure.Message), 2*maxReason)
	}
	// Progressing keeps its reason, which is what allows the node controller to clean.
	set(flotillav1.ConditionProgressing, isTrue(flotillav1.ReasonCleaning, message))
	set(flotillav1.ConditionReady, metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message})
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

func isTrue(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func isFalse(reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// appliedCondition shows whether every node carries what the spec says, conflicts aside; the worst reason first.
func appliedCondition(pool *flotillav1.NodePool, found ownership.Survey) metav1.Condition {
	pending := nodeCount(len(found.Pending))
	switch {
	case len(found.Refused) > 0:
		return isFalse(flotillav1.ReasonApplyFailed, "Keys that no pool may set: %s", enumerate(sets.List(found.RefusedKeys)))
	case len(found.Failing) > 0 && !ownership.ReadOnly(pool):
		return isFalse(found.Failure.Reason, "Nodes cannot be patched (%s): %s", enumerate(found.Failing), found.Failure.Message)
	case len(found.Oversized) > 0:
		return isFalse(flotillav1.ReasonRecordTooLarge, "The record would exceed 64 KiB on %s", enumerate(found.Oversized))
	case len(found.Pending) > 0 && ownership.ReadOnly(pool):
		return isFalse(readOnlyReason(pool), "The spec asks for changes to %s", pending)
	case len(found.Looping) > 0:
		return isFalse(flotillav1.ReasonMembershipLoop, "By labels that they set (%s), pools %s make %s join and leave for ever, so nothing changes there: change labels or nodeSelector of one of them",
			enumerate(found.LoopLabels), enumerate(sets.List(found.LoopPools)), enumerate(found.Looping))
	case len(found.Fighting) > 0:
		return isFalse(flotillav1.ReasonOwnershipFight, "Something keeps changing %s on %s", enumerate(sets.List(found.FightKeys)), enumerate(found.Fighting))
	case len(found.Waiting) > 0 && found.Halted:
		return isFalse(flotillav1.ReasonRolloutHalted, "Over %d%% of the nodes are not ready, so NoExecute taints wait on %s", ownership.HaltPercent, nodeCount(len(found.Waiting)))
	case len(found.Pending) > 0:
		return isFalse(flotillav1.ReasonNodesPending, "Changes to %s are on their way%s", pending, turns(found))
	case found.Counts.NodeCount == 0:
		return isTrue(flotillav1.ReasonNoMatchingNodes, "No node belongs to the pool")
	}
	return isTrue(flotillav1.ReasonAllNodesUpdated, "Nothing is left to do on "+nodeCount(int(found.Counts.NodeCount)))
}

// turns says why nodes wait although nothing is wrong.
func turns(found ownership.Survey) string {
	if len(found.Waiting) == 0 {
		return ""
	}
	return "; NoExecute taints spread as fast as rollout allows"
}

func conflictsCondition(found ownership.Survey) metav1.Condition {
	if len(found.Conflicting) == 0 {
		return isTrue(flotillav1.ReasonNoConflict, "Nothing else sets the keys of the pool")
	}
	return isFalse(flotillav1.ReasonKeyConflict, "Something else sets %s on %s", enumerate(sets.List(found.ConflictKeys)), enumerate(found.Conflicting))
}

func healthCondition(found ownership.Survey) metav1.Condition {
	switch {
	case found.Counts.NodeCount == 0:
		return isTrue(flotillav1.ReasonNoMatchingNodes, "No node belongs to the pool")
	case len(found.NotReady) > 0:
		return isFalse(flotillav1.ReasonNodesNotReady, "%d of %s not ready: %s", len(found.NotReady), nodeCount(int(found.Counts.NodeCount)), enumerate(found.NotReady))
	}
	return isTrue(flotillav1.ReasonAllNodesReady, "All nodes are ready")
}

func progressCondition(pool *flotillav1.NodePool, found ownership.Survey) metav1.Condition {
	switch {
	case ownership.ReadOnly(pool):
		return isFalse(readOnlyReason(pool), "The pool changes no nodes")
	case len(found.Waiting) > 0 && found.Halted:
		return isFalse(flotillav1.ReasonRolloutHalted, "Too many nodes are not ready")
	case len(found.Pending) > 0:
		return isTrue(flotillav1.ReasonNodesPending, fmt.Sprintf("Changes to %s are on their way%s", nodeCount(len(found.Pending)), turns(found)))
	}
	return isFalse(flotillav1.ReasonSettled, "No change is in progress")
}

// requestsCondition shows whether status.requested is current; it is empty if nothing is known either way.
func requestsCondition(usage *ownership.Usage) metav1.Condition {
	switch {
	case usage.Failure != (ownership.Failure{}):
		return isFalse(usage.Failure.Reason, "The Pods cannot be read: %s", usage.Failure.Message)
	case usage.ByNode == nil:
		return metav1.Condition{}
	}
	return isTrue(flotillav1.ReasonMeasured, "What the Pods ask for has been added up")
}

// readyCondition is the first condition that is not True. Nodes that are not ready only show in NodesHealthy: the pool has
// done its job on them.
func readyCondition(applied metav1.Condition, others ...metav1.Condition) metav1.Condition {
	worst := applied
	for _, condition := range others {
		if worst.Status == metav1.ConditionTrue && condition.Status != metav1.ConditionTrue {
			worst = condition
		}
	}
	return metav1.Condition{Status: worst.Status, Reason: worst.Reason, Message: worst.Message}
}

// readOnlyReason returns why a pool may change nothing.
func readOnlyReason(pool *flotillav1.NodePool) string {
	if pool.Spec.Paused {
		return flotillav1.ReasonPaused
	}
	return flotillav1.ReasonDryRun
}

// statusNumber derives status.status from the conditions. A pool is 206 while changes are on their way or held back: nothing
// is wrong, but not everything is applied.
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
	flotillav1.ReasonApplyFailed:      statusFailed,
	flotillav1.ReasonForbidden:        statusFailed,
	flotillav1.ReasonRecordTooLarge:   statusFailed,
	flotillav1.ReasonOwnershipFight:   statusConflict,
	flotillav1.ReasonMembershipLoop:   statusConflict,
	flotillav1.ReasonKeyConflict:      statusConflict,
	flotillav1.ReasonNameConflict:     statusConflict,
	flotillav1.ReasonSelectorNotExact: statusConflict,
}

// onlyProgress reports whether two statuses differ at most in how many nodes are done. Otherwise a change of 1,000 nodes would
// be a write a second.
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

// failureOf returns an error in the form that conditions show.
func failureOf(err error) ownership.Failure {
	reason := flotillav1.ReasonApplyFailed
	if apierrors.IsForbidden(err) {
		reason = flotillav1.ReasonForbidden
	}
	var status apierrors.APIStatus
	message := err.Error()
	if errors.As(err, &status) && status.Status().Message != "" {
		message = status.Status().Message
	}
	return ownership.Failure{Reason: reason, Message: text.Clause(message, maxReason)}
}
