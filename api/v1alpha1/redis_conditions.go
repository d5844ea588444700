// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a Redis in a member, besides Ready and Progressing.
const (
	// ConditionDegraded is True when the Redis works with reduced availability or capacity.
	ConditionDegraded = "Degraded"
	// ConditionPodsCreated is True when every desired Pod exists.
	ConditionPodsCreated = "PodsCreated"
	// ConditionPrimaryAvailable is True when the primary accepts writes: it is Ready, and so are the replicas that it
	// requires.
	ConditionPrimaryAvailable = "PrimaryAvailable"
	// ConditionStorageReady is True when every volume is bound and has the requested size.
	ConditionStorageReady = "StorageReady"
	// ConditionConfigApplied is True when every Pod runs the configuration of the spec.
	ConditionConfigApplied = "ConfigApplied"
	// ConditionRolloutBlocked is True when an update has stopped to avoid harm.
	ConditionRolloutBlocked = "RolloutBlocked"
	// ConditionEmptyPrimaryBlocked is True when the primary's volume is empty although there was data.
	ConditionEmptyPrimaryBlocked = "EmptyPrimaryBlocked"
	// ConditionDataAtRisk is True when the spec allows data loss.
	ConditionDataAtRisk = "DataAtRisk"
	// ConditionObjectsAltered is True while the member stores an object of the Redis with other fields than were applied,
	// because of a webhook or a policy; absent otherwise.
	ConditionObjectsAltered = "ObjectsAltered"
	// ConditionModeChanging is True while the Pods of a Redis are replaced by those of another mode; absent otherwise.
	ConditionModeChanging = "ModeChanging"
	// ConditionPaused is True while nothing is changed because the object, or its member, is paused.
	ConditionPaused = "Paused"
)

// Reasons of a Redis in a member.
const (
	// ReasonAllReplicasReady means that every desired Pod is Ready.
	ReasonAllReplicasReady = "AllReplicasReady"
	// ReasonReplicasNotReady means that some Pod is not Ready.
	ReasonReplicasNotReady = "ReplicasNotReady"
	// ReasonPrimaryReady means that the primary is Ready.
	ReasonPrimaryReady = "PrimaryReady"
	// ReasonPrimaryNotReady means that the primary is missing or not Ready.
	ReasonPrimaryNotReady = "PrimaryNotReady"
	// ReasonScaledToZero means that replicas is 0.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonBound means that every volume is bound.
	ReasonBound = "Bound"
	// ReasonVolumesPending means that some volume is not bound.
	ReasonVolumesPending = "VolumesPending"
	// ReasonEphemeral means that data is on an EmptyDir.
	ReasonEphemeral = "Ephemeral"
	// ReasonPersistenceDisabled means that nothing is written to storage.
	ReasonPersistenceDisabled = "PersistenceDisabled"
	// ReasonNone means that there is nothing to report.
	ReasonNone = "None"
	// ReasonUpdated means that every Pod carries the current spec.
	ReasonUpdated = "Updated"
	// ReasonRollingUpdate means that Pods are being replaced one by one.
	ReasonRollingUpdate = "RollingUpdate"
	// ReasonSecretMissing means that the Secret that the spec refers to does not exist, lacks the key or the label
	// flotilla.dev/redis-auth.
	ReasonSecretMissing = "SecretMissing"
	// ReasonAuthLost means that the password of an initialised Redis is missing. Restore Secret <name>-auth.
	ReasonAuthLost = "AuthLost"
	// ReasonPaused means that spec.paused is set.
	ReasonPaused = "Paused"
	// ReasonConfigRejected means that the configuration has a value that cannot be rendered.
	ReasonConfigRejected = "ConfigRejected"
	// ReasonForbidden means that the member refused a read or a write; the message names verb and resource.
	ReasonForbidden = "Forbidden"
	// ReasonChildRejected means that the member's API server refused an object that the Redis needs; the message says
	// which and why.
	ReasonChildRejected = "ChildRejected"
	// ReasonPrimaryVolumeEmpty means that the volume of <name>-0 is empty, or has data in another format, although this
	// Redis had data. Restore the volume, or accept the loss with annotation flotilla.dev/force-empty-primary.
	ReasonPrimaryVolumeEmpty = "PrimaryVolumeEmpty"
	// ReasonDeleting means that the object is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonRolloutStuck means that a replaced Pod does not become Ready; revert the change.
	ReasonRolloutStuck = "RolloutStuck"
	// ReasonWaitingForApproval means that only the primary is left to update and updateStrategy.primary is Supervised.
	// Approve with annotation flotilla.dev/approve-primary-update; the message gives its value.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonMaxMemoryUnset means that neither a memory limit nor maxMemory bounds the data set.
	ReasonMaxMemoryUnset = "MaxMemoryUnset"
	// ReasonWritesRefused means that the primary is Ready and refuses writes because fewer replicas are Ready than
	// replication.minReplicasToWrite requires.
	ReasonWritesRefused = "WritesRefused"
	// ReasonLarger means that every volume is bound and some are larger than storage.size. Volumes do not shrink.
	ReasonLarger = "Larger"
	// ReasonPreviousRejected means that no Pod uses the previous password in the Secret. Nothing restarts. Correct it, or
	// remove its key to restart all Pods together.
	ReasonPreviousRejected = "PreviousRejected"
	// ReasonPodsExist means that every desired Pod exists, Ready or not.
	ReasonPodsExist = "PodsExist"
	// ReasonCreatingPods means that the StatefulSet controller has yet to create a Pod.
	ReasonCreatingPods = "CreatingPods"
	// ReasonPodNotCreated means that a Pod has been missing for 15 seconds or more; the message quotes the cause. Raise
	// the quota, correct the admission policy, request less, or lower replicas.
	ReasonPodNotCreated = "PodNotCreated"
	// ReasonNodeLost means that the node of a Pod is gone or not Ready. If the Pod is being deleted and cannot terminate,
	// taint the node node.kubernetes.io/out-of-service if it is off for certain, or delete the Pod by force; the manager
	// never does.
	ReasonNodeLost = "NodeLost"
	// ReasonTerminationStuck means that a Pod was deleted and does not terminate although its node is Ready. Check its
	// finalizers and the log of the kubelet.
	ReasonTerminationStuck = "TerminationStuck"
	// ReasonPrunable means that Secret <name>-auth has a label by which a GitOps tool may prune it, and that the rights of
	// the hub in the member are of an earlier version. Apply config/member, or remove the label.
	ReasonPrunable = "Prunable"
	// ReasonUnschedulable means that no node has accepted a Pod for 15 seconds or more; the message quotes the scheduler.
	// Add capacity, or change nodeSelector, tolerations, podAntiAffinity or resources.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImageUnavailable means that the image of a Pod cannot be pulled. Correct image or imagePullSecrets, or revert
	// the change.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonContainerNotCreated means that the node cannot create the container of a Pod; the message shows the cause.
	ReasonContainerNotCreated = "ContainerNotCreated"
	// ReasonCrashing means that the server of a Pod exits. Check the log of the Pod, or revert the change.
	ReasonCrashing = "Crashing"
	// ReasonOOMKilled means that the server of a Pod needed more memory than its limit. Raise resources.limits.memory or
	// lower memory.maxMemory.
	ReasonOOMKilled = "OOMKilled"
	// ReasonDiskFull means that the volume of a Pod cannot be written, so its server refuses writes. Make room or raise
	// storage.size. Do not delete the Pod: its memory contains data that could not be written.
	ReasonDiskFull = "DiskFull"
	// ReasonSnapshotFailed means that the last snapshot of a Pod's server failed, so it refuses writes. Check the log of
	// the Pod: its volume may be full, or its memory too small to fork. Do not delete the Pod: its memory contains data
	// that is in no snapshot.
	ReasonSnapshotFailed = "SnapshotFailed"
	// ReasonVolumeLost means that the volume of a PersistentVolumeClaim is gone. Restore it, or delete the claim and its
	// Pod to start that Pod without data.
	ReasonVolumeLost = "VolumeLost"
	// ReasonVolumeDeleting means that a PersistentVolumeClaim was deleted and is removed when its Pod terminates. The
	// primary is not replaced meanwhile; copy the data.
	ReasonVolumeDeleting = "VolumeDeleting"
	// ReasonExpanding means that volumes are growing.
	ReasonExpanding = "Expanding"
	// ReasonExpansionRefused means that the member does not allow volumes to grow; the message shows the cause. Allow it
	// in the StorageClass (allowVolumeExpansion) or in the quota; the manager retries every ten minutes.
	ReasonExpansionRefused = "ExpansionRefused"
	// ReasonExpansionInfeasible means that the storage driver cannot expand a volume. Check the events of the
	// PersistentVolumeClaim.
	ReasonExpansionInfeasible = "ExpansionInfeasible"
	// ReasonTwoPasswords means that every Pod accepts the password and the previous one. Change the clients, then remove
	// the key of the previous password, which the message names, from the Secret.
	ReasonTwoPasswords = "TwoPasswords"
	// ReasonPrimaryUnknown means that, in mode Sentinel, no Pod has reported for a minute that it is the primary. Failover
	// works without this; check the container keeper of the Pods. An update waits for ten minutes, then continues.
	ReasonPrimaryUnknown = "PrimaryUnknown"
	// ReasonTopologyUnknown means that, in mode Sentinel, neither a sentinel nor a volume knows which Pod was the primary.
	// Choose one with annotation flotilla.dev/force-primary.
	ReasonTopologyUnknown = "TopologyUnknown"
	// ReasonQuorumAtRisk means that, in mode Sentinel, one of the three sentinels does not run: another one missing stops
	// failover.
	ReasonQuorumAtRisk = "QuorumAtRisk"
	// ReasonQuorumLost means that, in mode Sentinel, fewer than two sentinels run: there is no failover, and clients of
	// <name>-primary are refused.
	ReasonQuorumLost = "QuorumLost"
	// ReasonProxyDown means that, in mode Sentinel, the proxy of a Pod does not serve.
	ReasonProxyDown = "ProxyDown"
	// ReasonSingleNode means that, in mode Sentinel, the three Pods that vote run on fewer than three nodes, so that one lost
	// node can stop failover.
	ReasonSingleNode = "SingleNode"
	// ReasonMigratingToSentinel means that the Pods of mode Replication are being replaced by those of mode Sentinel.
	ReasonMigratingToSentinel = "MigratingToSentinel"
)
