// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a NodePool in a member, besides Ready and Progressing. Ready is True when Applied, RuntimeClassReady
// and NoConflicts are. Nodes that are not ready make NodesHealthy False but not Ready: the pool is fully applied to
// them.
const (
	// ConditionApplied is True when every node has the keys of the spec, apart from conflicts.
	ConditionApplied = "Applied"
	// ConditionNodesHealthy is True when every node is Ready.
	ConditionNodesHealthy = "NodesHealthy"
	// ConditionNoConflicts is True when nothing else sets the pool's keys.
	ConditionNoConflicts = "NoConflicts"
	// ConditionRuntimeClassReady is True when the RuntimeClass is up to date, or none is requested.
	ConditionRuntimeClassReady = "RuntimeClassReady"
	// ConditionRequestsKnown is True when status.requested is what the Pods currently request, and absent without
	// spec.reporting.requested. While it is False the numbers are the last known ones.
	ConditionRequestsKnown = "RequestsKnown"
)

// Reasons of a NodePool in a member.
const (
	// ReasonAllNodesUpdated means that every node has the keys of the spec.
	ReasonAllNodesUpdated = "AllNodesUpdated"
	// ReasonNodesPending means that some node does not have the keys of the spec yet.
	ReasonNodesPending = "NodesPending"
	// ReasonNoMatchingNodes means that the pool is empty.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonAllNodesReady means that every node is Ready.
	ReasonAllNodesReady = "AllNodesReady"
	// ReasonNodesNotReady means that some node is not Ready.
	ReasonNodesNotReady = "NodesNotReady"
	// ReasonNoConflict means that nothing else sets the pool's keys.
	ReasonNoConflict = "NoConflict"
	// ReasonKeyConflict means that something else set one of the pool's keys. See conflictPolicy.
	ReasonKeyConflict = "KeyConflict"
	// ReasonOwnershipFight means that something else keeps rewriting one of the pool's keys.
	ReasonOwnershipFight = "OwnershipFight"
	// ReasonMembershipLoop means that pools set labels by which others select, so that a node would join and leave them
	// endlessly; the node is not changed. The message names the pools.
	ReasonMembershipLoop = "MembershipLoop"
	// ReasonRecordTooLarge means that the record on a node would exceed 64 KiB; the node is not changed.
	ReasonRecordTooLarge = "RecordTooLarge"
	// ReasonNoHandler means that no RuntimeClass is requested.
	ReasonNoHandler = "NoHandler"
	// ReasonRuntimeClassApplied means that the RuntimeClass is up to date.
	ReasonRuntimeClassApplied = "RuntimeClassApplied"
	// ReasonSelectorNotExact means that the RuntimeClass cannot select exactly the nodes of the pool; the message shows
	// the cause.
	ReasonSelectorNotExact = "SelectorNotExact"
	// ReasonDryRun means that nothing is written because dryRun is set.
	ReasonDryRun = "DryRun"
	// ReasonMeasured means that the requests of the Pods have been summed up.
	ReasonMeasured = "Measured"
	// ReasonMeasuringFailed means that the Pods cannot be read; the message shows the cause.
	ReasonMeasuringFailed = "MeasuringFailed"
	// ReasonCleaning means that the keys of the pool are being removed from nodes.
	ReasonCleaning = "Cleaning"
)
