// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a NodePool in a member, besides Ready and Progressing. Ready is True when Applied, RuntimeClassReady and
// NoConflicts are; nodes that are not ready make NodesHealthy False and leave Ready True, because the pool has done its job.
const (
	// ConditionApplied is True when every node carries what the spec says, conflicts aside.
	ConditionApplied = "Applied"
	// ConditionNodesHealthy is True when every node is Ready.
	ConditionNodesHealthy = "NodesHealthy"
	// ConditionNoConflicts is True when nothing else sets the pool's keys.
	ConditionNoConflicts = "NoConflicts"
	// ConditionRuntimeClassReady is True when the RuntimeClass is as it should be, or none is asked for.
	ConditionRuntimeClassReady = "RuntimeClassReady"
	// ConditionRequestsKnown is True when status.requested is what the Pods ask for now, and absent without
	// spec.reporting.requested. While it is False the numbers are the last known ones.
	ConditionRequestsKnown = "RequestsKnown"
)

// Reasons of a NodePool in a member.
const (
	// ReasonAllNodesUpdated says that every node carries what the spec says.
	ReasonAllNodesUpdated = "AllNodesUpdated"
	// ReasonNodesPending says that some node does not carry what the spec says yet.
	ReasonNodesPending = "NodesPending"
	// ReasonNoMatchingNodes says that the pool is empty.
	ReasonNoMatchingNodes = "NoMatchingNodes"
	// ReasonAllNodesReady says that every node is Ready.
	ReasonAllNodesReady = "AllNodesReady"
	// ReasonNodesNotReady says that some node is not Ready.
	ReasonNodesNotReady = "NodesNotReady"
	// ReasonNoConflict says that nothing else sets the pool's keys.
	ReasonNoConflict = "NoConflict"
	// ReasonKeyConflict says that something else set one of the pool's keys. See conflictPolicy.
	ReasonKeyConflict = "KeyConflict"
	// ReasonOwnershipFight says that something else keeps rewriting one of the pool's keys.
	ReasonOwnershipFight = "OwnershipFight"
	// ReasonMembershipLoop says that pools set labels by which others select, so that a node would join and leave them for
	// ever; it is left as it is. The message names the pools.
	ReasonMembershipLoop = "MembershipLoop"
	// ReasonRecordTooLarge says that the record on a node would pass 64 KiB; the node is left alone.
	ReasonRecordTooLarge = "RecordTooLarge"
	// ReasonNoHandler says that no RuntimeClass is asked for.
	ReasonNoHandler = "NoHandler"
	// ReasonRuntimeClassApplied says that the RuntimeClass is as it should be.
	ReasonRuntimeClassApplied = "RuntimeClassApplied"
	// ReasonSelectorNotExact says that the RuntimeClass cannot select exactly the nodes of the pool; the message says why.
	ReasonSelectorNotExact = "SelectorNotExact"
	// ReasonDryRun says that nothing is written because dryRun is set.
	ReasonDryRun = "DryRun"
	// ReasonMeasured says that what the Pods ask for has been added up.
	ReasonMeasured = "Measured"
	// ReasonMeasuringFailed says that the Pods cannot be read; the message says why.
	ReasonMeasuringFailed = "MeasuringFailed"
	// ReasonCleaning says that nodes are being made as they were.
	ReasonCleaning = "Cleaning"
)
