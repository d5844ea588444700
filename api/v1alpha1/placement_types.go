// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placement says which members get a copy of a hub object. It is ignored in a member.
//
// +kubebuilder:validation:XValidation:rule="[has(self.clusters) && size(self.clusters) > 0, has(self.clusterSelector), has(self.all) && self.all].exists(x, x)",message="name clusters, give a clusterSelector, or say all: true"
// +kubebuilder:validation:XValidation:rule="!(has(self.all) && self.all) || !(has(self.clusters) && size(self.clusters) > 0) && !has(self.clusterSelector)",message="all: true excludes clusters and clusterSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.clusterSelector) || (has(self.clusterSelector.matchLabels) && size(self.clusterSelector.matchLabels) > 0) || (has(self.clusterSelector.matchExpressions) && size(self.clusterSelector.matchExpressions) > 0)",message="an empty clusterSelector selects nothing on purpose: say all: true to choose every member"
type Placement struct {
	// clusters names members. A name that is not registered counts as desired and unknown.
	// The members chosen are the union of clusters and clusterSelector.
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

	// overrides change the spec for some members, applied in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Overrides []Override `json:"overrides,omitempty"`

	// conflictPolicy says what happens when a member has an object of this name that is not our copy.
	// Refuse leaves it untouched; Adopt takes it when the member consents with annotation flotilla.dev/adopt-by.
	// +optional
	// +kubebuilder:validation:Enum=Refuse;Adopt
	// +kubebuilder:default=Refuse
	ConflictPolicy string `json:"conflictPolicy,omitempty"`

	// deletionPolicy says what happens to the copies when the hub object is deleted or a member is no longer chosen.
	// Delete removes them; Orphan leaves them as the member's own.
	// +optional
	// +kubebuilder:validation:Enum=Delete;Orphan
	// +kubebuilder:default=Delete
	DeletionPolicy string `json:"deletionPolicy,omitempty"`

	// rollout bounds how changes of existing copies spread over the members.
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
	// clusters names the members that this override is for.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	Clusters []string `json:"clusters,omitempty"`

	// clusterSelector selects the members that this override is for.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// patch is a JSON merge patch of the spec. It sets at least one field. An unknown field, null, an empty object and
	// placement itself are refused with reason OverrideInvalid.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Patch *apiextensionsv1.JSON `json:"patch,omitempty"`

	// leaveToMember names fields of the spec that the hub does not apply in these members: at most 32 paths such as
	// replicas, resources.limits or nodeSelector.example.com/zone, relative to the spec. A new copy gets the default of the
	// member's schema; an existing copy keeps its present value. An unknown field, a required one, placement, an element of
	// a list and a field that patch sets are refused with reason OverrideInvalid.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z][A-Za-z0-9]*([.][-A-Za-z0-9_./]+)?$`
	LeaveToMember []string `json:"leaveToMember,omitempty"`
}

// Rollout bounds how changes spread over existing copies.
type Rollout struct {
	// batch is how many clusters change at once after the first: a number or a percentage of the chosen ones. Default 10%.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:Pattern=`^([1-9][0-9]{0,3}|[1-9][0-9]?%|100%)$`
	Batch string `json:"batch,omitempty"`

	// maxUnready is how many clusters of the new generation may be not ready before the rollout stops. Default 0.
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
}

// MaxPlacedIn is how many members may have a copy of a hub object: status.placedIn has to fit into one object of the API.
const MaxPlacedIn = 10000

// FleetStatus is the part of a hub object's status that both kinds share. It is empty in a member.
type FleetStatus struct {
	// clusterCounts counts the chosen members: ready + notReady + unknown = desired, always.
	// +optional
	ClusterCounts *ClusterCounts `json:"clusterCounts,omitempty"`

	// clustersOmitted is how many entries of clusters were left out because there are more than 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ClustersOmitted int32 `json:"clustersOmitted,omitempty"`

	// placedIn names every member that may have a copy. A name is added before the first write there
	// and removed only after the copy was seen gone, released or offboarded. Sorted; each name is there once. At most
	// 10,000 members have a copy; others that are chosen show reason TooManyClusters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MaxLength=63
	PlacedIn []string `json:"placedIn,omitempty"`

	// choice is a hash of what chose the clusters when departing was decided: clusters, clusterSelector and all of spec.placement.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Choice string `json:"choice,omitempty"`

	// departing lists the clusters in placedIn that are not chosen any more, and why. Sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Departing []Departure `json:"departing,omitempty"`

	// recreated lists the clusters in placedIn whose copy of a Redis was gone, though the hub had not removed it, and was made
	// again. An entry stays until annotation flotilla.dev/confirm-recreated names the cluster. Sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Recreated []Recreation `json:"recreated,omitempty"`
}

// Recreation records that a copy was gone and was made again.
type Recreation struct {
	// name of the member.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// time at which the earlier copy was found gone.
	// +required
	Time metav1.Time `json:"time"`
}

// Departure records why a cluster that has a copy is not chosen any more. It decides what becomes of the copy.
type Departure struct {
	// name of the member.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// cause is LabelsChanged when the registration of the cluster changed, or may have: the copy is kept. It is ChoiceChanged
	// when spec.placement changed: the copy is removed. It is Undecided while the copy cannot be read: the copy is kept.
	// +required
	// +kubebuilder:validation:Enum=LabelsChanged;ChoiceChanged;Undecided
	Cause string `json:"cause"`

	// labels is a hash of the labels that an undecided cluster had when spec.placement changed. Its copy is removed if it
	// carries the same.
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

// ClusterCounts counts members by what is known about the copy there.
type ClusterCounts struct {
	// desired is the number of members chosen, those that still have a copy to remove included.
	// +required
	Desired int32 `json:"desired"`
	// applied is the number of members whose copy carries the current generation.
	// +required
	Applied int32 `json:"applied"`
	// ready is the number of members whose copy is ready at the current generation.
	// +required
	Ready int32 `json:"ready"`
	// notReady is the number of members whose copy can be seen and is not ready.
	// +required
	NotReady int32 `json:"notReady"`
	// unknown is the number of members whose copy cannot be seen.
	// +required
	Unknown int32 `json:"unknown"`
}

// ClusterStatus is what is known about the copy in one member.
type ClusterStatus struct {
	// name of the member.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// ready is "True", "False" or "Unknown". Unknown entries keep their last numbers.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	Ready metav1.ConditionStatus `json:"ready"`

	// reason is why the copy is not ready, or why it is not known.
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

	// observedGeneration is the hub generation that the copy carries and the member has observed.
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
	// GetFleetStatus returns the part of status that both kinds share.
	GetFleetStatus() *FleetStatus
	// GetConditions returns the conditions to read and change.
	GetConditions() *[]metav1.Condition
}
