// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a Redis in a member, besides Ready and Progressing.
const (
	// ConditionDegraded is True when the Redis serves with less than it should.
	ConditionDegraded = "Degraded"
	// ConditionPodsCreated is True when every Pod asked for exists.
	ConditionPodsCreated = "PodsCreated"
	// ConditionPrimaryAvailable is True when the primary takes writes: it is Ready, and so are as many replicas as it needs for that.
	ConditionPrimaryAvailable = "PrimaryAvailable"
	// ConditionStorageReady is True when every volume is bound and of its size.
	ConditionStorageReady = "StorageReady"
	// ConditionConfigApplied is True when every Pod runs with the configuration of the spec.
	ConditionConfigApplied = "ConfigApplied"
	// ConditionRolloutBlocked is True when an update stopped before harm.
	ConditionRolloutBlocked = "RolloutBlocked"
	// ConditionEmptyPrimaryBlocked is True when the primary's volume is empty while there was data.
	ConditionEmptyPrimaryBlocked = "EmptyPrimaryBlocked"
	// ConditionDataAtRisk is True when the spec allows data to be lost.
	ConditionDataAtRisk = "DataAtRisk"
	// ConditionObjectsAltered is True while the member stores an object of the Redis with other fields than were asked for, because of
	// a webhook or a policy; absent otherwise.
	ConditionObjectsAltered = "ObjectsAltered"
	// ConditionPaused is True while nothing is changed because the object, or its member, is paused.
	ConditionPaused = "Paused"
)

// Reasons of a Redis in a member.
const (
	// ReasonAllReplicasReady says that every Pod asked for is Ready.
	ReasonAllReplicasReady = "AllReplicasReady"
	// ReasonReplicasNotReady says that some Pod is not Ready.
	ReasonReplicasNotReady = "ReplicasNotReady"
	// ReasonPrimaryReady says that <name>-0 is Ready.
	ReasonPrimaryReady = "PrimaryReady"
	// ReasonPrimaryNotReady says that <name>-0 is missing or not Ready.
	ReasonPrimaryNotReady = "PrimaryNotReady"
	// ReasonScaledToZero says that replicas is 0.
	ReasonScaledToZero = "ScaledToZero"
	// ReasonBound says that every volume is bound.
	ReasonBound = "Bound"
	// ReasonVolumesPending says that some volume is not bound.
	ReasonVolumesPending = "VolumesPending"
	// ReasonEphemeral says that data is on an EmptyDir.
	ReasonEphemeral = "Ephemeral"
	// ReasonPersistenceDisabled says that nothing is written to storage.
	ReasonPersistenceDisabled = "PersistenceDisabled"
	// ReasonNone says that there is nothing to report.
	ReasonNone = "None"
	// ReasonUpdated says that every Pod carries the current spec.
	ReasonUpdated = "Updated"
	// ReasonRollingUpdate says that Pods are being replaced one by one.
	ReasonRollingUpdate = "RollingUpdate"
	// ReasonSecretMissing says that the Secret that the spec refers to does not exist, lacks the key or the label flotilla.dev/redis-auth.
	ReasonSecretMissing = "SecretMissing"
	// ReasonAuthLost says that the password of an initialised Redis is gone. Restore Secret <name>-auth.
	ReasonAuthLost = "AuthLost"
	// ReasonPaused says that spec.paused is set.
	ReasonPaused = "Paused"
	// ReasonConfigRejected says that the configuration has a value that cannot be rendered.
	ReasonConfigRejected = "ConfigRejected"
	// ReasonForbidden says that the member refused a read or a write; the message names verb and resource.
	ReasonForbidden = "Forbidden"
	// ReasonChildRejected says that the member's API server refused an object that the Redis needs; the message says which and why.
	ReasonChildRejected = "ChildRejected"
	// ReasonPrimaryVolumeEmpty says that the volume of <name>-0 is empty, or has data in another form, although this Redis had data. Restore the volume, or accept the loss with annotation flotilla.dev/force-empty-primary.
	ReasonPrimaryVolumeEmpty = "PrimaryVolumeEmpty"
	// ReasonDeleting says that the object is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonRolloutStuck says that a replaced Pod does not become Ready; revert the change.
	ReasonRolloutStuck = "RolloutStuck"
	// ReasonWaitingForApproval says that only the primary is left to update and updateStrategy.primary is Supervised. Approve with annotation flotilla.dev/approve-primary-update; the message gives its value.
	ReasonWaitingForApproval = "WaitingForApproval"
	// ReasonMaxMemoryUnset says that neither a memory limit nor maxMemory bounds the data set.
	ReasonMaxMemoryUnset = "MaxMemoryUnset"
	// ReasonWritesRefused says that the primary is Ready and refuses writes because fewer replicas are Ready than replication.minReplicasToWrite asks for.
	ReasonWritesRefused = "WritesRefused"
	// ReasonLarger says that every volume is bound and some are larger than storage.size. They stay so: volumes do not shrink.
	ReasonLarger = "Larger"
	// ReasonPreviousRejected says that the previous password in the Secret is not one that any Pod runs with. Nothing restarts. Correct it, or remove its key to restart all Pods together.
	ReasonPreviousRejected = "PreviousRejected"
	// ReasonPodsExist says that every Pod asked for exists, Ready or not.
	ReasonPodsExist = "PodsExist"
	// ReasonCreatingPods says that the StatefulSet controller has yet to create a Pod.
	ReasonCreatingPods = "CreatingPods"
	// ReasonPodNotCreated says that a Pod does not exist for 15 seconds or more; the message quotes why. Raise the quota, correct the admission policy, ask for less, or lower replicas.
	ReasonPodNotCreated = "PodNotCreated"
	// ReasonNodeLost says that the node of a Pod is gone or not Ready. Where the Pod is being deleted and cannot end, taint the node node.kubernetes.io/out-of-service if it is off for certain, or delete the Pod by force; the manager never does.
	ReasonNodeLost = "NodeLost"
	// ReasonTerminationStuck says that a Pod was deleted and does not end although its node is Ready. See its finalizers, and the log of the kubelet.
	ReasonTerminationStuck = "TerminationStuck"
	// ReasonPrunable says that Secret <name>-auth has a label by which a GitOps tool may prune it, and that the rights of the hub in the member are of an earlier version. Apply config/member, or remove the label.
	ReasonPrunable = "Prunable"
	// ReasonUnschedulable says that no node takes a Pod for 15 seconds or more; the message quotes the scheduler. Make room, or change nodeSelector, tolerations, podAntiAffinity or resources.
	ReasonUnschedulable = "Unschedulable"
	// ReasonImageUnavailable says that the image of a Pod cannot be pulled. Correct image or imagePullSecrets, or revert the change.
	ReasonImageUnavailable = "ImageUnavailable"
	// ReasonContainerNotCreated says that the node cannot make the container of a Pod; the message says why.
	ReasonContainerNotCreated = "ContainerNotCreated"
	// ReasonCrashing says that the server of a Pod ends. See the log of the Pod, or revert the change.
	ReasonCrashing = "Crashing"
	// ReasonOOMKilled says that the server of a Pod needed more memory than its limit. Raise resources.limits.memory or lower memory.maxMemory.
	ReasonOOMKilled = "OOMKilled"
	// ReasonDiskFull says that the volume of a Pod cannot be written, so that its server refuses writes. Make room or raise storage.size; do not delete the Pod, whose server holds what it could not write.
	ReasonDiskFull = "DiskFull"
	// ReasonSnapshotFailed says that the last snapshot of a Pod's server failed, so that it refuses writes. See the log of the Pod: its volume may be full, or its memory too small to fork; do not delete the Pod, whose server holds what is in no snapshot.
	ReasonSnapshotFailed = "SnapshotFailed"
	// ReasonVolumeLost says that the volume behind a claim is gone. Restore it, or delete the claim and its Pod to start that Pod without data.
	ReasonVolumeLost = "VolumeLost"
	// ReasonVolumeDeleting says that a claim was deleted and ends with its Pod. The primary is not replaced meanwhile; take a copy of the data.
	ReasonVolumeDeleting = "VolumeDeleting"
	// ReasonExpanding says that volumes are growing.
	ReasonExpanding = "Expanding"
	// ReasonExpansionRefused says that the member does not let volumes grow; the message says why. Allow it in the StorageClass (allowVolumeExpansion) or in the quota; it is tried again every ten minutes.
	ReasonExpansionRefused = "ExpansionRefused"
	// ReasonExpansionInfeasible says that the storage has given up growing a volume. See the events of the claim.
	ReasonExpansionInfeasible = "ExpansionInfeasible"
	// ReasonTwoPasswords says that every Pod accepts the password and the previous one. Change the clients, then remove the key of the previous one, which the message names, from the Secret.
	ReasonTwoPasswords = "TwoPasswords"
)
