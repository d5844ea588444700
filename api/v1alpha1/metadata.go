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
	// AnnotationClusterName names the member when it is not to be named after the Secret.
	AnnotationClusterName = "flotilla.dev/cluster-name"
	// AnnotationPaused, when "true", makes the manager observe a member and write nothing there.
	AnnotationPaused = "flotilla.dev/paused"
	// AnnotationDrain, when "true", removes the copies from a member.
	AnnotationDrain = "flotilla.dev/drain"
	// AnnotationKinds lists, separated by commas, the kinds of ours that a member takes part in; all when it is absent.
	AnnotationKinds = "flotilla.dev/kinds"
	// AnnotationAllowedNamespaces lists, separated by commas, the namespaces of the hub that may place in a member; "*" is all of them.
	AnnotationAllowedNamespaces = "flotilla.dev/allowed-namespaces"
	// AnnotationTakeOver names the hub whose claim on a member is taken over.
	AnnotationTakeOver = "flotilla.dev/take-over"
	// AnnotationReplace gives the UID of the new kube-system namespace when a registration comes to mean another cluster.
	AnnotationReplace = "flotilla.dev/replace"
)

// Annotations of hub objects and of their copies in members.
const (
	// AnnotationHub holds the hub id on every copy.
	AnnotationHub = "flotilla.dev/hub"
	// AnnotationPlacedFrom holds "<namespace>/<name>" of the hub object on every copy; the namespace of a cluster-scoped object is empty.
	AnnotationPlacedFrom = "flotilla.dev/placed-from"
	// AnnotationHubUID holds the UID of the hub object on every copy, for information only.
	AnnotationHubUID = "flotilla.dev/hub-uid"
	// AnnotationHubGeneration holds the generation of the hub object that gave the copy its spec.
	AnnotationHubGeneration = "flotilla.dev/hub-generation"
	// AnnotationSpecHash holds the hash of the effective spec that the copy was given; on a Pod of a Redis, that of what it was started with.
	AnnotationSpecHash = "flotilla.dev/spec-hash"
	// AnnotationPreviousSpecHash holds the hash of the effective spec that the copy had before: a return to it needs no trial.
	AnnotationPreviousSpecHash = "flotilla.dev/previous-spec-hash"
	// AnnotationSpecChangedAt holds the time, in RFC 3339, at which the copy was given its spec.
	AnnotationSpecChangedAt = "flotilla.dev/spec-changed-at"
	// AnnotationRollout holds the hash of the hub object's spec and overrides that gave the copy its spec.
	AnnotationRollout = "flotilla.dev/rollout"
	// AnnotationClusterLabels holds, on every copy, a hash of the labels that its cluster had when it was chosen last.
	AnnotationClusterLabels = "flotilla.dev/cluster-labels"
	// AnnotationLeftToMember lists, separated by commas, the fields of the spec that the hub leaves to the member on a copy; absent when there are none.
	AnnotationLeftToMember = "flotilla.dev/left-to-member"
	// AnnotationDeletionPolicy is on a copy whose hub object says deletionPolicy Orphan, so that it is known when the placement is gone.
	AnnotationDeletionPolicy = "flotilla.dev/deletion-policy"
	// AnnotationAdoptBy, on a member's object, consents to the named hub adopting it.
	AnnotationAdoptBy = "flotilla.dev/adopt-by"
	// AnnotationConfirmLeave, on a hub object, names the clusters whose copies may go after their labels changed.
	AnnotationConfirmLeave = "flotilla.dev/confirm-leave"
	// AnnotationConfirmRemoval, on a hub object, holds the generation of it for which more copies may go than the budget allows.
	AnnotationConfirmRemoval = "flotilla.dev/confirm-removal"
	// AnnotationConfirmRecreated, on a hub object, names the clusters of which it has been seen that their copies were made again.
	AnnotationConfirmRecreated = "flotilla.dev/confirm-recreated"
	// AnnotationDeletionProtection, when "true" on a hub object, or on a namespace for the Redises in it, has its deletion refused.
	AnnotationDeletionProtection = "flotilla.dev/deletion-protection"
	// AnnotationRelease, on a hub object, names the clusters whose copies are given up.
	AnnotationRelease = "flotilla.dev/release"
)

// AnnotationCRDRevision numbers the schemas of a CustomResourceDefinition of ours: every change of one raises it.
const AnnotationCRDRevision = "flotilla.dev/crd-revision"

// Labels, annotations and finalizers of what the member reconcilers make.
const (
	// LabelRedis holds the name of the Redis on each object that belongs to it.
	LabelRedis = "flotilla.dev/redis"
	// LabelNodePool holds the name of the NodePool on each object that belongs to it.
	LabelNodePool = "flotilla.dev/node-pool"
	// LabelRedisAuth must be "true" on a Secret that a Redis refers to for its password.
	LabelRedisAuth = "flotilla.dev/redis-auth"
	// AnnotationInitialized marks a PVC whose volume holds data.
	AnnotationInitialized = "flotilla.dev/initialized"
	// AnnotationForceEmptyPrimary, on a member's Redis, gives the UID of the PVC of <name>-0 whose emptiness a person accepts. It is removed once it worked.
	AnnotationForceEmptyPrimary = "flotilla.dev/force-empty-primary"
	// AnnotationApprovePrimaryUpdate, on a member's Redis with updateStrategy.primary Supervised, gives the spec hash that its primary may be updated to.
	AnnotationApprovePrimaryUpdate = "flotilla.dev/approve-primary-update"
	// AnnotationConfig, on a Pod of a Redis, names the ConfigMap that it was started with.
	AnnotationConfig = "flotilla.dev/config"
	// AnnotationAppliedHash holds, on what a member reconciler applies, the hash of what it applied last.
	AnnotationAppliedHash = "flotilla.dev/applied-hash"
	// AnnotationNodeRecord holds, on a Node, what NodePools wrote and what was there before.
	AnnotationNodeRecord = "flotilla.dev/node-record"
	// FinalizerPlacement keeps a hub object until its copies are gone.
	FinalizerPlacement = "flotilla.dev/placement"
	// FinalizerNodePool keeps a NodePool while nodes carry its keys.
	FinalizerNodePool = "flotilla.dev/node-pool"
	// FinalizerRedis keeps a Redis until its volumes are removed, with retention policy Delete.
	FinalizerRedis = "flotilla.dev/redis"
)
