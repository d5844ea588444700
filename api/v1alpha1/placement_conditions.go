// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of hub objects.
const (
	// ConditionReady is True when every chosen cluster that can be seen is ready at this generation, Unknown when none can be seen.
	// In a member it is True when the object does its job.
	ConditionReady = "Ready"
	// ConditionFullyReady is True when Ready and ClustersReachable are.
	ConditionFullyReady = "FullyReady"
	// ConditionPlaced is True when every chosen cluster that can be written has a copy of this generation.
	ConditionPlaced = "Placed"
	// ConditionClustersReachable is True when all chosen clusters can be seen.
	ConditionClustersReachable = "ClustersReachable"
	// ConditionProgressing is True while a change is on its way.
	ConditionProgressing = "Progressing"
	// ConditionRemovalHeld is True while copies stay that the object no longer wants, because removing them takes a confirmation.
	// The message names the clusters and the annotation that confirms it. It is absent otherwise.
	ConditionRemovalHeld = "RemovalHeld"
	// ConditionCopyRecreated is True after copies were gone though the hub had not removed them, and were made again. The message
	// names the clusters and the annotation that acknowledges it. It is absent otherwise.
	ConditionCopyRecreated = "CopyRecreated"
	// ConditionStalled is True when something only goes on when a person acts, and absent otherwise; its reason says what. By
	// the rules of kstatus an object that has it has failed, so that GitOps tools stop waiting. MemberClusters have it, too.
	ConditionStalled = "Stalled"
	// ConditionPlacementIgnored is True in a member when spec.placement is set: placement only means something on the hub.
	ConditionPlacementIgnored = "PlacementIgnored"
)

// Reasons of the conditions and cluster entries of hub objects.
const (
	// ReasonAllReady says that every cluster that can be seen is ready.
	ReasonAllReady = "AllReady"
	// ReasonClustersNotReady says that some cluster that can be seen is not ready; the message names it.
	ReasonClustersNotReady = "ClustersNotReady"
	// ReasonClustersUnknown says that some cluster cannot be seen; the message names it.
	ReasonClustersUnknown = "ClustersUnknown"
	// ReasonNoPlacement says that the object has no placement. Set spec.placement.
	ReasonNoPlacement = "NoPlacement"
	// ReasonNoClusterSelected says that no registered member matches the placement.
	ReasonNoClusterSelected = "NoClusterSelected"
	// ReasonNotRegistered says that a named member has no registration.
	ReasonNotRegistered = "NotRegistered"
	// ReasonClusterUnreachable says that the member cannot be reached; numbers are the last known ones.
	ReasonClusterUnreachable = "ClusterUnreachable"
	// ReasonClusterNotReady says that the member's registration or caches are not ready; see its MemberCluster.
	ReasonClusterNotReady = "ClusterNotReady"
	// ReasonAllPlaced says that every chosen cluster that can be written has the copy.
	ReasonAllPlaced = "AllPlaced"
	// ReasonPlacementPending says that some cluster does not have the copy of this generation yet.
	ReasonPlacementPending = "PlacementPending"
	// ReasonPending says that the member has not observed this generation yet.
	ReasonPending = "Pending"
	// ReasonNameConflict says that the member has an object of this name that is not our copy.
	ReasonNameConflict = "NameConflict"
	// ReasonPlacementInvalid says that a selector of the placement does not parse; nothing is changed until it does.
	ReasonPlacementInvalid = "PlacementInvalid"
	// ReasonFieldDropped says that the member stored something else than what was sent: its CRD lacks a field, or a webhook changes it.
	ReasonFieldDropped = "FieldDropped"
	// ReasonNamespaceMissing says that the member lacks the namespace and that namespaces are not created there.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonOverrideInvalid says that an override does not decode into the spec.
	ReasonOverrideInvalid = "OverrideInvalid"
	// ReasonNamespaceNotAllowed says that copies may not be placed into that namespace, or that the registration does not let
	// the hub object's namespace place there. See flotilla.dev/allowed-namespaces.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonTooManyClusters says that a cluster gets no copy because as many as can be recorded have one. Use several objects.
	ReasonTooManyClusters = "TooManyClusters"
	// ReasonApplyFailed says that the member's API server refused the copy; the message says why.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonLeaving says that a cluster no longer matches because its labels changed and keeps its copy.
	ReasonLeaving = "Leaving"
	// ReasonRemoving says that the copy is being removed.
	ReasonRemoving = "Removing"
	// ReasonRemovalHeld says, on the entry of a cluster, that its copy is kept until the removal is confirmed. See condition RemovalHeld.
	ReasonRemovalHeld = "RemovalHeld"
	// ReasonBudgetExceeded says that more copies are to be removed at once than the removal budget allows. Confirm the removal, or undo
	// what removes them.
	ReasonBudgetExceeded = "BudgetExceeded"
	// ReasonCopyRecreated says that copies were gone and were made again, without the data of the earlier ones unless their volumes
	// were kept. Restore what is missing, then acknowledge it.
	ReasonCopyRecreated = "CopyRecreated"
	// ReasonAllReachable says that all chosen clusters can be seen.
	ReasonAllReachable = "AllReachable"
	// ReasonSettled says that nothing is on its way.
	ReasonSettled = "Settled"
	// ReasonRollingOut says that a change goes to some clusters at a time; the message says which come next.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutHalted says that a change stopped because changed clusters did not become ready.
	ReasonRolloutHalted = "RolloutHalted"
	// ReasonPlacementInMember says that spec.placement is set on a member's object.
	ReasonPlacementInMember = "PlacementInMember"
	// ReasonOther stands for a member's reason that is not one of ours.
	ReasonOther = "Other"
)

// StallingReasons are the reasons for not being ready, of a copy or of the object in a member, that only end when a person
// acts. The most important one comes first.
func StallingReasons() []string {
	return []string{
		ReasonPrimaryVolumeEmpty, ReasonAuthLost, ReasonNameConflict, ReasonNamespaceNotAllowed, ReasonConfigRejected,
		ReasonMembershipLoop, ReasonRecordTooLarge, ReasonSelectorNotExact, ReasonTooManyClusters,
	}
}
