// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of hub objects.
const (
	// ConditionReady is True when every chosen cluster that can be observed is ready at this generation, Unknown when none
	// can be. In a member it is True when the object is fully reconciled and works.
	ConditionReady = "Ready"
	// ConditionFullyReady is True when Ready and ClustersReachable are.
	ConditionFullyReady = "FullyReady"
	// ConditionPlaced is True when every chosen cluster that can be written to has a copy of this generation.
	ConditionPlaced = "Placed"
	// ConditionClustersReachable is True when all chosen clusters can be observed.
	ConditionClustersReachable = "ClustersReachable"
	// ConditionProgressing is True while a change is in progress.
	ConditionProgressing = "Progressing"
	// ConditionRemovalHeld is True while copies that are no longer wanted stay, because their removal needs a
	// confirmation. The message names the clusters and the annotation that confirms it. It is absent otherwise.
	ConditionRemovalHeld = "RemovalHeld"
	// ConditionCopyRecreated is True after copies disappeared without being removed by the hub and were created again. The
	// message names the clusters and the annotation that acknowledges it. It is absent otherwise.
	ConditionCopyRecreated = "CopyRecreated"
	// ConditionStalled is True when something can only continue after a person acts, and absent otherwise. By
	// the rules of kstatus such an object has failed, so that GitOps tools stop waiting. MemberClusters have it, too.
	ConditionStalled = "Stalled"
	// ConditionPlacementIgnored is True in a member when spec.placement is set: placement has an effect on the hub only.
	ConditionPlacementIgnored = "PlacementIgnored"
)

// Reasons of the conditions and cluster entries of hub objects.
const (
	// ReasonAllReady means that every cluster that can be observed is ready.
	ReasonAllReady = "AllReady"
	// ReasonClustersNotReady means that some cluster that can be observed is not ready; the message names it.
	ReasonClustersNotReady = "ClustersNotReady"
	// ReasonClustersUnknown means that some cluster cannot be observed; the message names it.
	ReasonClustersUnknown = "ClustersUnknown"
	// ReasonNoPlacement means that the object has no placement. Set spec.placement.
	ReasonNoPlacement = "NoPlacement"
	// ReasonNoClusterSelected means that no registered member matches the placement.
	ReasonNoClusterSelected = "NoClusterSelected"
	// ReasonNotRegistered means that a named member has no registration.
	ReasonNotRegistered = "NotRegistered"
	// ReasonClusterUnreachable means that the member cannot be reached; numbers are the last known ones.
	ReasonClusterUnreachable = "ClusterUnreachable"
	// ReasonClusterNotReady means that the member's registration or caches are not ready; see its MemberCluster.
	ReasonClusterNotReady = "ClusterNotReady"
	// ReasonAllPlaced means that every chosen cluster that can be written to has the copy.
	ReasonAllPlaced = "AllPlaced"
	// ReasonPlacementPending means that some cluster does not have the copy of this generation yet.
	ReasonPlacementPending = "PlacementPending"
	// ReasonPending means that the member has not observed this generation yet.
	ReasonPending = "Pending"
	// ReasonNameConflict means that the member has an object with this name that is not a copy of this hub object.
	ReasonNameConflict = "NameConflict"
	// ReasonPlacementInvalid means that a selector of the placement does not parse. Nothing is changed until it is
	// corrected.
	ReasonPlacementInvalid = "PlacementInvalid"
	// ReasonFieldDropped means that the member stored something other than what was sent: its CRD lacks a field, or a
	// webhook changes it.
	ReasonFieldDropped = "FieldDropped"
	// ReasonNamespaceMissing means that the member lacks the namespace, and that the manager is configured not to create
	// namespaces.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonOverrideInvalid means that an override does not decode into the spec.
	ReasonOverrideInvalid = "OverrideInvalid"
	// ReasonNamespaceNotAllowed means that copies may not be placed into that namespace, or that the registration does not
	// allow the hub object's namespace. See flotilla.dev/allowed-namespaces.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonTooManyClusters means that a cluster gets no copy because the maximum number of clusters have one. Use several
	// objects.
	ReasonTooManyClusters = "TooManyClusters"
	// ReasonApplyFailed means that the member's API server refused the copy; the message shows the cause.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonLeaving means that a cluster no longer matches because its labels changed and keeps its copy.
	ReasonLeaving = "Leaving"
	// ReasonRemoving means that the copy is being removed.
	ReasonRemoving = "Removing"
	// ReasonRemovalHeld means, on the entry of a cluster, that its copy is kept until the removal is confirmed. See
	// condition RemovalHeld.
	ReasonRemovalHeld = "RemovalHeld"
	// ReasonBudgetExceeded means that more copies would be removed at once than the removal budget allows. Confirm the
	// removal, or undo the change that removes them.
	ReasonBudgetExceeded = "BudgetExceeded"
	// ReasonCopyRecreated means that copies disappeared and were created again, without their earlier data unless their
	// volumes were kept. Restore what is missing, then acknowledge it.
	ReasonCopyRecreated = "CopyRecreated"
	// ReasonAllReachable means that all chosen clusters can be observed.
	ReasonAllReachable = "AllReachable"
	// ReasonSettled means that no change is in progress.
	ReasonSettled = "Settled"
	// ReasonRollingOut means that a change is applied to some clusters at a time; the message names those that the rollout
	// waits for.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutHalted means that a change stopped because clusters may have taken it and are not known to be ready in
	// time. The message names them.
	ReasonRolloutHalted = "RolloutHalted"
	// ReasonRolloutPaused means that clusters wait for a change because spec.placement.rollout.paused is set.
	ReasonRolloutPaused = "RolloutPaused"
	// ReasonRolloutReverted means that a change was taken back because clusters, which the message names, may have taken it and
	// are not known to be ready in time. It stays taken back until the spec is edited or a person has it tried again.
	ReasonRolloutReverted = "RolloutReverted"
	// ReasonReverted means, on the entry of a cluster, that its copy is ready with the spec before the present one, which was
	// taken back.
	ReasonReverted = "Reverted"
	// ReasonPlacementInMember means that spec.placement is set on a member's object.
	ReasonPlacementInMember = "PlacementInMember"
	// ReasonOther replaces a reason of a member that the hub does not know.
	ReasonOther = "Other"
)

// StallingReasons returns the reasons of a copy, or of an object in a member, for not being ready that only a person
// can resolve. The most important one comes first.
func StallingReasons() []string {
	return []string{
		ReasonPrimaryVolumeEmpty, ReasonTopologyUnknown, ReasonAuthLost, ReasonNameConflict, ReasonNamespaceNotAllowed, ReasonConfigRejected,
		ReasonMembershipLoop, ReasonRecordTooLarge, ReasonSelectorNotExact, ReasonTooManyClusters,
	}
}
