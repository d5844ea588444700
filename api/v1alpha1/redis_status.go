// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RedisStatus is the observed state of a Redis; on the hub, aggregated over the members that can be observed.
type RedisStatus struct {
	// conditions of the Redis.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=24
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that this status describes; -1 before it is first written.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of Pods.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of Pods that are Ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// updatedReplicas is the number of Pods with the current spec.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// desiredReplicas is the sum of the desired replicas, including those in members that cannot be observed.
	// +optional
	DesiredReplicas int32 `json:"desiredReplicas"`

	// selector of the Pods, for the scale subresource. Empty on the hub.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`

	// primary is the Pod that accepts writes. Empty on the hub, and in mode Sentinel while no Pod has reported that it is
	// the primary.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Primary string `json:"primary,omitempty"`

	// primaryEpoch is, in mode Sentinel, the configuration epoch of the sentinels at which the primary was last reported.
	// +optional
	PrimaryEpoch *int64 `json:"primaryEpoch,omitempty"`

	// failovers is, in mode Sentinel, the number of changes of the primary that the manager has observed, planned ones
	// included; changes while no manager runs count as one. On the hub it is the sum.
	// +optional
	Failovers int32 `json:"failovers,omitempty"`

	// lastFailoverTime is when the last of these changes was reported. Empty on the hub.
	// +optional
	LastFailoverTime *metav1.Time `json:"lastFailoverTime,omitempty"`

	// members are the Pods. Empty on the hub.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Members []RedisMember `json:"members,omitempty"`

	FleetStatus `json:",inline"`

	// clusters lists the state of the copy in each member, sorted by name and without duplicates. At most 100 are listed;
	// those that are not ready take precedence.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Clusters []RedisClusterStatus `json:"clusters,omitempty"`
}

// RedisMember is one Pod of a Redis.
type RedisMember struct {
	// name of the Pod.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// role is primary or replica.
	// +required
	// +kubebuilder:validation:Enum=primary;replica
	Role string `json:"role"`
	// ready reports whether the Pod is Ready.
	// +required
	Ready bool `json:"ready"`
	// node that the Pod runs on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
}

// RedisClusterStatus is the state of the copy of a Redis in one member.
type RedisClusterStatus struct {
	ClusterStatus `json:",inline"`

	// replicas is the number of Pods in the member.
	// +optional
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of Pods in the member that are Ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// updatedReplicas is the number of Pods in the member with the current spec.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// primary is the Pod in the member that accepts writes, as last observed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Primary string `json:"primary,omitempty"`

	// failovers is the number of changes of the primary in the member, in mode Sentinel.
	// +optional
	Failovers int32 `json:"failovers,omitempty"`

	// lastFailoverTime is when the last of these changes was reported.
	// +optional
	LastFailoverTime *metav1.Time `json:"lastFailoverTime,omitempty"`
}
