// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// memberReasons are the reasons of the reconcilers in members. A test ensures that the set is complete.
var memberReasons = sets.New(
	flotillav1.ReasonAllNodesReady, flotillav1.ReasonAllNodesUpdated, flotillav1.ReasonAllReplicasReady,
	flotillav1.ReasonAuthLost, flotillav1.ReasonBound, flotillav1.ReasonChildRejected, flotillav1.ReasonCleaning, flotillav1.ReasonConfigRejected,
	flotillav1.ReasonDeleting, flotillav1.ReasonDryRun, flotillav1.ReasonEphemeral, flotillav1.ReasonForbidden,
	flotillav1.ReasonKeyConflict, flotillav1.ReasonMaxMemoryUnset, flotillav1.ReasonMeasured, flotillav1.ReasonMeasuringFailed, flotillav1.ReasonNameConflict,
	flotillav1.ReasonNoConflict, flotillav1.ReasonNoHandler, flotillav1.ReasonNoMatchingNodes,
	flotillav1.ReasonNodesNotReady, flotillav1.ReasonNodesPending, flotillav1.ReasonNone,
	flotillav1.ReasonOwnershipFight, flotillav1.ReasonPaused, flotillav1.ReasonPending,
	flotillav1.ReasonPersistenceDisabled, flotillav1.ReasonPlacementInMember, flotillav1.ReasonPrimaryNotReady,
	flotillav1.ReasonPrimaryReady, flotillav1.ReasonPrimaryVolumeEmpty, flotillav1.ReasonRecordTooLarge, flotillav1.ReasonReplicasNotReady,
	flotillav1.ReasonRollingUpdate, flotillav1.ReasonRolloutStuck, flotillav1.ReasonRuntimeClassApplied,
	flotillav1.ReasonScaledToZero, flotillav1.ReasonSecretMissing, flotillav1.ReasonSettled,
	flotillav1.ReasonUpdated, flotillav1.ReasonVolumesPending,
	flotillav1.ReasonUnschedulable, flotillav1.ReasonImageUnavailable, flotillav1.ReasonContainerNotCreated, flotillav1.ReasonCrashing,
	flotillav1.ReasonOOMKilled, flotillav1.ReasonDiskFull, flotillav1.ReasonSnapshotFailed, flotillav1.ReasonVolumeLost, flotillav1.ReasonVolumeDeleting,
	flotillav1.ReasonExpanding, flotillav1.ReasonExpansionRefused, flotillav1.ReasonExpansionInfeasible, flotillav1.ReasonTwoPasswords,
	flotillav1.ReasonMembershipLoop, flotillav1.ReasonSelectorNotExact,
	flotillav1.ReasonWaitingForApproval, flotillav1.ReasonPrunable, flotillav1.ReasonWritesRefused, flotillav1.ReasonLarger, flotillav1.ReasonPreviousRejected, flotillav1.ReasonPodsExist, flotillav1.ReasonCreatingPods,
	flotillav1.ReasonPodNotCreated, flotillav1.ReasonNodeLost, flotillav1.ReasonTerminationStuck, flotillav1.ReasonFieldDropped,
	flotillav1.ReasonPrimaryUnknown, flotillav1.ReasonTopologyUnknown, flotillav1.ReasonQuorumAtRisk, flotillav1.ReasonQuorumLost,
	flotillav1.ReasonProxyDown, flotillav1.ReasonSingleNode, flotillav1.ReasonMigratingToSentinel,
)

// Reason returns the reason of a member if it is a known one, otherwise Other.
func Reason(reason string) string {
	if memberReasons.Has(reason) {
		return reason
	}
	return flotillav1.ReasonOther
}
