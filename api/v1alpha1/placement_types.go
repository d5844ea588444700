// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placement defines which members get a copy of a hub object. It is ignored in a member.
//
// +kubebuilder:validation:XValidation:rule="[has(self.clusters) && size(self.clusters) > 0, has(self.clusterSelector), has(self.all) && self.all].exists(x, x)",message="name clusters, give a clusterSelector, or say all: true"
// +kubebuilder:validation:XValidation:rule="!(has(self.all) && self.all) || !(has(self.clusters) && size(self.clusters) > 0) && !has(self.clusterSelector)",message="all: true excludes clusters and clusterSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterSelector) || (has(self.clusterSelector.matchLabels) && size(self.clusterSelector.matchLabels) > 0) || (has(self.clusterSelector.matchExpressions) && size(self.clusterSelector.matchExpressions) > 0)",message="an empty clusterSelector selects nothing on purpose: say all: true to choose every member"
type Placement struct {
	// clusters lists members by name. A name that is not registered counts as desired and unknown.
	// The chosen members are the union of clusters and clusterSelector.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Clusters []string `json:"clusters,omitempty"`

	// clusterSelector selects members by the labels of their MemberCluster. An empty selector is refused.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// all chooses every registered member.
	// +optional
	All bool `json:"all,omitempty"`

	// overrides change the spec for some members. They are applied in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Overrides []Override `json:"overrides,omitempty"`

	// conflictPolicy defines what happens if a member has an object with this name that is not a copy of this object.
	// Refuse does not touch it; Adopt turns it into the copy if the member consents with annotation flotilla.dev/adopt-by.
	// +optional
	// +kubebuilder:validation:Enum=Refuse;Adopt
	// +kubebuilder:default=Refuse
	ConflictPolicy string `json:"conflictPolicy,omitempty"`

	// deletionPolicy defines what happens to the copies when the hub object is deleted or a member is no longer chosen.
	// Delete removes them; Orphan keeps them as objects of the member.
	// +optional
	// +kubebuilder:validation:Enum=Delete;Orphan
	// +kubebuilder:default=Delete
	DeletionPolicy string `json:"deletionPolicy,omitempty"`

	// rollout limits how changes of existing copies spread over the members.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`
}

// Placement policies.
const (
	ConflictPolicyRefuse = "Refuse"
	ConflictPolicyAdopt  = "Adopt"
	DeletionPolicyDelete = "Delete"
	DeletionPolicyOrphan = "Orphan"
)

// Override changes the spec of the copies in some members.
//
// +kubebuilder:validation:XValidation:rule="(has(self.clusters) && size(self.clusters) > 0) != has(self.clusterSelector)",message="give either clusters or a clusterSelector"
// +kubebuilder:validation:XValidation:rule="has(self.patch) || has(self.leaveToMember) && size(self.leaveToMember) > 0",message="an override needs a patch or leaveToMember: set fields in patch, or name those that the member decides in leaveToMember"
// +kubebuilder:validation:XValidation:rule="!has(self.patch) || size(dyn(self.patch)) > 0",message="the patch is empty: set a field in it, or remove it and name the fields that the member decides in leaveToMember (kubectl apply and Helm drop null values before they send a patch)"
type Override struct {
	// clusters lists the members that this override applies to.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	Clusters []string `json:"clusters,omitempty"`

	// clusterSelector selects the members that this override applies to.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// patch is a JSON merge patch of the spec. It sets at least one field. An unknown field, null, an empty object and
	// placement itself are refused with reason OverrideInvalid.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Patch *apiextensionsv1.JSON `json:"patch,omitempty"`

	// leaveToMember lists fields of the spec that the hub does not apply in these members: at most 32 paths such as
	// replicas, resources.limits or nodeSelector.example.com/zone, relative to the spec. A new copy gets the default of
	// the member's schema; an existing copy keeps its value. An unknown field, a required field, placement, an element of
	// a list and a field that patch sets are refused with reason OverrideInvalid.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z][A-Za-z0-9]*([.][-A-Za-z0-9_./]+)?$`
	LeaveToMember []string `json:"leaveToMember,omitempty"`
}

// Rollout limits how changes spread over existing copies.
type Rollout struct {
	// paused stops a change from reaching further clusters. Those that have begun finish it. A spec that needs no trial
	// still reaches all clusters: one with which a cluster was ready before, and one that is paused itself.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// steps are the sizes of the first batches, each a number of clusters or a percentage of the chosen ones. Default: one
	// cluster alone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=8
	// +kubebuilder:validation:items:Pattern=`^([1-9][0-9]{0,3}|[1-9][0-9]?%|100%)$`
	Steps []string `json:"steps,omitempty"`

	// batch is the size of each batch after the steps: a number of clusters or a percentage of the chosen ones. Default 10%.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,3}|[1-9][0-9]?%|100%)$`
	Batch string `json:"batch,omitempty"`

	// maxUnready is the number of changed clusters that may fail to become ready in time before the rollout stops. Default
	// 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxUnready int32 `json:"maxUnready,omitempty"`

	// progressDeadlineSeconds is how long a changed cluster may take to become ready. Default 600.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// soakSeconds is how long a changed cluster has to stay ready before the next ones change. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SoakSeconds int32 `json:"soakSeconds,omitempty"`

	// order groups the clusters by the value of a label. The groups change one after another. Default: one group.
	// +optional
	Order *RolloutOrder `json:"order,omitempty"`

	// onHalt is what happens when more than maxUnready clusters fail with a change. Stop: no other cluster changes. Revert: the
	// clusters that took the change get the spec back with which they were ready before, all others keep what they have, and
	// the change stays taken back until the spec is edited or a person has it tried again. Default Stop.
	// +optional
	// +kubebuilder:validation:Enum=Stop;Revert
	OnHalt string `json:"onHalt,omitempty"`
}

// What happens when a rollout halts.
const (
	OnHaltStop   = "Stop"
	OnHaltRevert = "Revert"
)

// RolloutOrder groups clusters by the value of a label.
type RolloutOrder struct {
	// label is the key of a label of the registrations.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label"`

	// values are the values of the groups, the first group first. All other clusters are the last group.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values"`
}

// MaxPlacedIn is the maximum number of members with a copy of a hub object: status.placedIn has to fit into one object.
const MaxPlacedIn = 10000

// FleetStatus is the part of the status of a hub object that both kinds have in common. It is empty in a member.
type FleetStatus struct {
	// clusterCounts counts the chosen members. The sum of ready, notReady and unknown is always desired.
	// +optional
	ClusterCounts *ClusterCounts `json:"clusterCounts,omitempty"`

	// rollout counts the clusters by how far they have come with a change of the spec. It is absent while no change is under
	// way: no cluster is changing, has failed or waits.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// clustersOmitted is the number of entries that clusters omits because there are more than 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ClustersOmitted int32 `json:"clustersOmitted,omitempty"`

	// placedIn lists every member that may have a copy, sorted and without duplicates. A name is added before the first
	// write there and removed only after the copy is observed to be gone, released or offboarded. At most 10,000 members
	// have a copy; further chosen members show reason TooManyClusters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MaxLength=63
	PlacedIn []string `json:"placedIn,omitempty"`

	// choice is a hash of clusters, clusterSelector and all of spec.placement at the time when departing was computed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Choice string `json:"choice,omitempty"`

	// departing lists the clusters in placedIn that are no longer chosen, with the cause. Sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Departing []Departure `json:"departing,omitempty"`

	// recreated lists the clusters in placedIn whose copy of a Redis disappeared without being removed by the hub and was
	// created again. An entry stays until annotation flotilla.dev/confirm-recreated names the cluster. Sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Recreated []Recreation `json:"recreated,omitempty"`

	// trials lists the clusters in placedIn that were ready, may have taken a change of their spec since, and have not been
	// seen ready with it yet. A cluster is added before it may take the change. Sorted by since and specHash.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	Trials []Trial `json:"trials,omitempty"`

	// change is the change of the spec that clusters have begun to take. It is absent while none is under way.
	// +optional
	Change *Change `json:"change,omitempty"`
}

// Change is a change of the spec that clusters have begun to take.
type Change struct {
	// rollout identifies the spec and the overrides, as annotation flotilla.dev/rollout of a copy does.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Rollout string `json:"rollout"`

	// since is when the first cluster was permitted to take it.
	// +required
	Since metav1.MicroTime `json:"since"`

	// revert is set if the change was taken back because of spec.placement.rollout.onHalt.
	// +optional
	Revert *Revert `json:"revert,omitempty"`
}

// Revert records that a change was taken back. A change is taken back once.
type Revert struct {
	// since is when it was taken back.
	// +required
	Since metav1.MicroTime `json:"since"`

	// revision is the name of the ControllerRevision whose spec new copies get.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`

	// specHashes identify the effective specs that failed. The change stays taken back while a chosen cluster would get one of
	// them.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=64
	SpecHashes []string `json:"specHashes"`

	// message names the clusters that failed, and says why.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`

	// retried is true if a person has the change tried again. It is not taken back a second time.
	// +optional
	Retried bool `json:"retried,omitempty"`
}

// Trial records clusters that may have taken a change and have not been seen ready with it yet.
type Trial struct {
	// specHash identifies the effective spec, as annotation flotilla.dev/spec-hash of a copy does. It is empty for a minute
	// after a permit was withdrawn of which nobody knows whether it was used, and then passed-over if the clusters did not
	// change in time: these change after the others.
	// +required
	// +kubebuilder:validation:MaxLength=64
	SpecHash string `json:"specHash"`

	// since is when the clusters were permitted to take the change.
	// +required
	Since metav1.MicroTime `json:"since"`

	// clusters are the names of the members, sorted.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	// +kubebuilder:validation:items:MaxLength=63
	Clusters []string `json:"clusters"`
}

// Recreation records that a copy disappeared and was created again.
type Recreation struct {
	// name of the member.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// time at which the earlier copy was found missing.
	// +required
	Time metav1.Time `json:"time"`
}

// Departure records why a cluster with a copy is no longer chosen, which determines whether the copy is kept.
type Departure struct {
	// name of the member.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// cause is LabelsChanged if the registration of the cluster changed or may have changed: the copy is kept. It is
	// ChoiceChanged if spec.placement changed: the copy is removed. It is Undecided while the copy cannot be read: the
	// copy is kept.
	// +required
	// +kubebuilder:validation:Enum=LabelsChanged;ChoiceChanged;Undecided
	Cause string `json:"cause"`

	// labels is a hash of the labels that an undecided cluster had when spec.placement changed. Its copy is removed if it
	// has the same hash.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Labels string `json:"labels,omitempty"`
}

// Causes of a departure.
const (
	DepartureLabelsChanged = "LabelsChanged"
	DepartureChoiceChanged = "ChoiceChanged"
	DepartureUndecided     = "Undecided"
)

// ClusterCounts counts members by the state of their copies.
type ClusterCounts struct {
	// desired is the number of chosen members, including those with a copy that still has to be removed.
	// +required
	Desired int32 `json:"desired"`
	// applied is the number of members to whose copy the current generation is applied.
	// +required
	Applied int32 `json:"applied"`
	// ready is the number of members whose copy is ready at the current generation.
	// +required
	Ready int32 `json:"ready"`
	// notReady is the number of members whose copy can be observed and is not ready.
	// +required
	NotReady int32 `json:"notReady"`
	// unknown is the number of members whose copy cannot be observed.
	// +required
	Unknown int32 `json:"unknown"`
}

// RolloutStatus counts members by how far they have come with a change of the spec. Members that the change does not
// affect, and those that cannot be written to and have not begun, are not counted.
type RolloutStatus struct {
	// done is the number of members that have the change and are ready with it.
	// +required
	// +kubebuilder:validation:Minimum=0
	Done int32 `json:"done"`
	// changing is the number of members that may be taking a change and still have time to become ready.
	// +required
	// +kubebuilder:validation:Minimum=0
	Changing int32 `json:"changing"`
	// failed is the number of members that may have taken a change and were not seen ready with it within
	// spec.placement.rollout.progressDeadlineSeconds. More than maxUnready of them stop the rollout.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`
	// waiting is the number of members that have not taken the change: it is not their turn, or the rollout is paused or has
	// stopped.
	// +required
	// +kubebuilder:validation:Minimum=0
	Waiting int32 `json:"waiting"`
	// reverted is the number of members that have what they had before the change, because it was taken back, or are about to
	// get it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Reverted int32 `json:"reverted,omitempty"`
}

// ClusterStatus is the state of the copy in one member.
type ClusterStatus struct {
	// name of the member.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// ready is "True", "False" or "Unknown". Unknown entries keep their last numbers.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	Ready metav1.ConditionStatus `json:"ready"`

	// reason is why the copy is not ready, or why its state is unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message explains the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// since is when ready last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// observedGeneration is the generation of the hub object that is applied to the copy and that the member has observed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Placeable is a hub object that placement copies into members.
//
// +kubebuilder:object:generate=false
type Placeable interface {
	metav1.Object
	// GetPlacement returns spec.placement, or nil.
	GetPlacement() *Placement
	// GetFleetStatus returns the part of the status that both kinds have in common.
	GetFleetStatus() *FleetStatus
	// GetConditions returns a pointer to the conditions.
	GetConditions() *[]metav1.Condition
}
