// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Labels and annotations of registration Secrets.
const (
	// LabelCluster marks a Secret as a registration when its value is "true".
	LabelCluster = "flotilla.dev/cluster"
	// LabelMulticlusterRuntime marks a Secret as a registration in the multicluster-runtime convention.
	LabelMulticlusterRuntime = "sigs.k8s.io/multicluster-runtime-kubeconfig"
	// KeyKubeconfig is the data key of the kubeconfig in a registration Secret.
	KeyKubeconfig = "kubeconfig"
	// AnnotationClusterName is the name of the member, if it differs from that of the Secret.
	AnnotationClusterName = "flotilla.dev/cluster-name"
	// AnnotationPaused, when "true", makes the manager observe a member and write nothing there. It may be on the
	// MemberCluster too, which no GitOps tool applies.
	AnnotationPaused = "flotilla.dev/paused"
	// AnnotationDrain, when "true", removes the copies from a member. It may be on the MemberCluster too.
	AnnotationDrain = "flotilla.dev/drain"
	// AnnotationKinds lists, separated by commas, the kinds that are reconciled in a member. Absent: all.
	AnnotationKinds = "flotilla.dev/kinds"
	// AnnotationAllowedNamespaces lists, separated by commas, the namespaces of the hub that may place in a member; "*"
	// means all.
	AnnotationAllowedNamespaces = "flotilla.dev/allowed-namespaces"
	// AnnotationTakeOver names the hub whose claim on a member is taken over.
	AnnotationTakeOver = "flotilla.dev/take-over"
	// AnnotationUnregister, when "true" on a registration that is deleted, offboards its member without a grace period.
	AnnotationUnregister = "flotilla.dev/unregister"
	// AnnotationReplace is the UID of the new kube-system namespace when a registration is changed to another cluster.
	AnnotationReplace = "flotilla.dev/replace"
)

// LabelRevisionOf is, on a ControllerRevision of the hub, the UID of the hub object whose spec it keeps.
const LabelRevisionOf = "flotilla.dev/revision-of"

// Annotations of hub objects and of their copies in members.
const (
	// AnnotationHub is the hub id, on every copy.
	AnnotationHub = "flotilla.dev/hub"
	// AnnotationPlacedFrom is "<namespace>/<name>" of the hub object, on every copy; the namespace of a cluster-scoped
	// object is empty.
	AnnotationPlacedFrom = "flotilla.dev/placed-from"
	// AnnotationHubUID is the UID of the hub object, on every copy, for information only.
	AnnotationHubUID = "flotilla.dev/hub-uid"
	// AnnotationHubGeneration is the generation of the hub object that led to the spec of the copy.
	AnnotationHubGeneration = "flotilla.dev/hub-generation"
	// AnnotationSpecHash is the hash of the effective spec that was applied to the copy; on a Pod of a Redis, of what it
	// was started with.
	AnnotationSpecHash = "flotilla.dev/spec-hash"
	// AnnotationPreviousSpecHash is the hash of the last effective spec before the present one with which the copy was
	// ready. Going back to it needs no trial.
	AnnotationPreviousSpecHash = "flotilla.dev/previous-spec-hash"
	// AnnotationSpecChangedAt is the time, in RFC 3339 with microseconds, at which the spec was applied to the copy.
	AnnotationSpecChangedAt = "flotilla.dev/spec-changed-at"
	// AnnotationReadyBefore is "true" if the copy was ready when its spec was last changed, and "false" if not. A change can
	// only break a copy that was ready.
	AnnotationReadyBefore = "flotilla.dev/ready-before"
	// AnnotationUnreadyNodesBefore is, on the copy of a NodePool, the number of its nodes that were not ready when its spec
	// was last changed.
	AnnotationUnreadyNodesBefore = "flotilla.dev/unready-nodes-before"
	// AnnotationRollout is the hash of the hub object's spec and overrides that led to the spec of the copy.
	AnnotationRollout = "flotilla.dev/rollout"
	// AnnotationClusterLabels is, on every copy, a hash of the labels that its cluster had when it was last chosen.
	AnnotationClusterLabels = "flotilla.dev/cluster-labels"
	// AnnotationLeftToMember lists, separated by commas, the fields of the spec of a copy that the hub leaves to the
	// member; absent if there are none.
	AnnotationLeftToMember = "flotilla.dev/left-to-member"
	// AnnotationDeletionPolicy is set on a copy whose hub object has deletionPolicy Orphan, so that the policy outlives
	// the placement.
	AnnotationDeletionPolicy = "flotilla.dev/deletion-policy"
	// AnnotationAdoptBy, on an object of a member, consents to its adoption by the named hub.
	AnnotationAdoptBy = "flotilla.dev/adopt-by"
	// AnnotationConfirmLeave, on a hub object, lists the clusters whose copies may be removed after their labels changed.
	AnnotationConfirmLeave = "flotilla.dev/confirm-leave"
	// AnnotationConfirmRemoval, on a hub object, is its generation for which more copies may be removed than the budget
	// allows.
	AnnotationConfirmRemoval = "flotilla.dev/confirm-removal"
	// AnnotationConfirmRecreated, on a hub object, lists the clusters for which a person acknowledges that their copies
	// were created again.
	AnnotationConfirmRecreated = "flotilla.dev/confirm-recreated"
	// AnnotationPromote, on a hub object, is its generation whose rollout skips soakSeconds; followed by "/full", it skips steps,
	// batches and groups too. Each value, and the generation followed by "/retry", has a change tried again that was taken back.
	// It is removed when the rollout is over.
	AnnotationPromote = "flotilla.dev/promote"
	// AnnotationDeletionProtection, when "true" on a hub object, or on a namespace for itself and the Redises in it,
	// prevents the deletion.
	AnnotationDeletionProtection = "flotilla.dev/deletion-protection"
	// AnnotationRelease, on a hub object, lists the clusters whose copies are given up.
	AnnotationRelease = "flotilla.dev/release"
)

// AnnotationCRDRevision is the revision of the schema of a CustomResourceDefinition of Flotilla. Every change increases
// it.
const AnnotationCRDRevision = "flotilla.dev/crd-revision"

// Labels, annotations and finalizers of the objects that the member reconcilers create.
const (
	// LabelRedis is the name of the Redis, on each object that belongs to it.
	LabelRedis = "flotilla.dev/redis"
	// LabelRedisProxy is "true" on Pods of a Redis that have a proxy, as in mode Sentinel.
	LabelRedisProxy = "flotilla.dev/proxy"
	// LabelNodePool is the name of the NodePool, on each object that belongs to it.
	LabelNodePool = "flotilla.dev/node-pool"
	// LabelRedisAuth must be "true" on a Secret that a Redis refers to for its password.
	LabelRedisAuth = "flotilla.dev/redis-auth"
	// AnnotationInitialized marks a PVC whose volume contains data.
	AnnotationInitialized = "flotilla.dev/initialized"
	// AnnotationForceEmptyPrimary, on a member's Redis, is the UID of the PVC of <name>-0 that a person accepts to be
	// empty. It is removed when the primary serves.
	AnnotationForceEmptyPrimary = "flotilla.dev/force-empty-primary"
	// AnnotationForcePrimary, on a member's Redis in mode Sentinel, is <pod>@<UID of its PVC>: a person chooses this Pod as
	// the primary because no other can be. It is removed when a primary serves.
	AnnotationForcePrimary = "flotilla.dev/force-primary"
	// AnnotationApprovePrimaryUpdate, on a member's Redis with updateStrategy.primary Supervised, is the spec hash to
	// which the primary may be updated.
	AnnotationApprovePrimaryUpdate = "flotilla.dev/approve-primary-update"
	// AnnotationConfig, on a Pod of a Redis, is the name of the ConfigMap that it was started with.
	AnnotationConfig = "flotilla.dev/config"
	// AnnotationAppliedHash is, on objects that a member reconciler applies, the hash of what was last applied.
	AnnotationAppliedHash = "flotilla.dev/applied-hash"
	// AnnotationNodeRecord lists, on a Node, what NodePools wrote and which values were there before.
	AnnotationNodeRecord = "flotilla.dev/node-record"
	// FinalizerPlacement delays the deletion of a hub object until its copies are gone.
	FinalizerPlacement = "flotilla.dev/placement"
	// FinalizerNodePool delays the deletion of a NodePool while nodes have its keys.
	FinalizerNodePool = "flotilla.dev/node-pool"
	// FinalizerRedis delays the deletion of a Redis with retention policy Delete until its volumes are removed.
	FinalizerRedis = "flotilla.dev/redis"
)
