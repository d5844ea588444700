// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MemberClusterSpec refers to the registration.
type MemberClusterSpec struct {
	// secretRef is the registration Secret.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// SecretReference names a Secret on the hub.
type SecretReference struct {
	// namespace of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the Secret that owns the cluster name.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// MemberClusterStatus is the state of a member as observed by the hub.
type MemberClusterStatus struct {
	// conditions of the member.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that this status describes; -1 before it is first written.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// uid of the member: the UID of its kube-system namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`

	// kubernetesVersion of the member's API server.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// endpoint is the host and port of the member's API server.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Endpoint string `json:"endpoint,omitempty"`

	// credentials describes the credential in use.
	// +optional
	Credentials *CredentialStatus `json:"credentials,omitempty"`

	// summary counts the objects of the member, including its own.
	// +optional
	Summary *MemberClusterSummary `json:"summary,omitempty"`

	// attention lists all released copies that may still exist, and the objects of the member that have not been ready for
	// longest, at most 20 in total unless there are more released copies.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Attention []Attention `json:"attention,omitempty"`

	// removals lists the copies that were deleted from the member and count against the removal budget. Entries that are
	// older than the window of the budget, 10 minutes, are dropped when the next one is added.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Removals []Removal `json:"removals,omitempty"`
}

// Removal is a deleted copy that counts against the removal budget.
type Removal struct {
	// kind of the copy.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace of the copy.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the copy.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the copy.
	// +required
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// time at which it was deleted.
	// +required
	Time metav1.Time `json:"time"`
}

// CredentialStatus describes a credential.
type CredentialStatus struct {
	// kind is Token or ClientCertificate.
	// +required
	// +kubebuilder:validation:Enum=Token;ClientCertificate
	Kind string `json:"kind"`
	// expirationTime of the credential, if it states one.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
}

// MemberClusterSummary counts the objects of a member.
type MemberClusterSummary struct {
	// redises in the member.
	// +required
	Redises ObjectCounts `json:"redises"`
	// nodePools in the member.
	// +required
	NodePools ObjectCounts `json:"nodePools"`
	// nodes in the member.
	// +required
	Nodes ObjectCounts `json:"nodes"`
	// redisesReady is <ready>/<total>, for the printed column.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	RedisesReady string `json:"redisesReady,omitempty"`
	// nodePoolsReady is <ready>/<total>, for the printed column.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	NodePoolsReady string `json:"nodePoolsReady,omitempty"`
	// nodesReady is <ready>/<total>, for the printed column.
	// +optional
	// +kubebuilder:validation:MaxLength=24
	NodesReady string `json:"nodesReady,omitempty"`
}

// ObjectCounts counts objects of a kind.
type ObjectCounts struct {
	// total number.
	// +required
	Total int32 `json:"total"`
	// ready ones.
	// +required
	Ready int32 `json:"ready"`
}

// Attention is an object of a member that needs attention.
type Attention struct {
	// kind of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// reason of its Ready condition, or Orphaned for a released copy.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// since when.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// MemberCluster represents a member on the hub. The manager creates it; deleting it does not offboard the member.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=memberclusters,scope=Cluster,shortName=mc,categories=flotilla
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Paused",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Redis",type=string,JSONPath=`.status.summary.redisesReady`
// +kubebuilder:printcolumn:name="NodePools",type=string,JSONPath=`.status.summary.nodePoolsReady`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.summary.nodesReady`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.conditions[?(@.type=="Ready")].lastTransitionTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a cluster name is a DNS label of at most 63 characters"
type MemberCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec refers to the registration.
	// +required
	Spec MemberClusterSpec `json:"spec"`
	// status is the state of the member as observed by the hub.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status MemberClusterStatus `json:"status,omitzero"`
}

// MemberClusterList is a list of MemberCluster.
//
// +kubebuilder:object:root=true
type MemberClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MemberCluster `json:"items"`
}
