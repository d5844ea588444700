// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePoolStatus is the observed state of a pool; on the hub, aggregated over the members that can be observed.
type NodePoolStatus struct {
	// conditions of the pool.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=24
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that this status describes; -1 before it is first written.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// status summarises the pool in one number: 200 everything is applied, 206 some members are unreachable or, in a
	// member, changes are not applied yet, 409 conflicts, 500 errors, 503 no member is reachable.
	// +optional
	Status int32 `json:"status"`

	NodePoolCounts `json:",inline"`

	// ownedKeys are the keys that the spec of the pool has or had and that may still be on nodes:
	// label:<key>, annotation:<key>, taint:<key>:<effect>. Empty on the hub.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=512
	OwnedKeys []string `json:"ownedKeys,omitempty"`

	// plan is what a dry run would write.
	// +optional
	Plan *NodePoolPlan `json:"plan,omitempty"`

	FleetStatus `json:",inline"`

	// clusters lists the state of the copy in each member, sorted by name and without duplicates. At most 100 are listed;
	// those that are not ready take precedence.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Clusters []NodePoolClusterStatus `json:"clusters,omitempty"`
}

// NodePoolCounts counts and sums the nodes of a pool.
type NodePoolCounts struct {
	// nodeCount is the number of nodes.
	// +optional
	NodeCount int32 `json:"nodeCount"`
	// readyNodes is the number of nodes that are Ready.
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// unschedulableNodes is the number of nodes that are cordoned.
	// +optional
	UnschedulableNodes int32 `json:"unschedulableNodes"`
	// updatedNodes is the number of nodes with the keys of the spec.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`
	// conflictingNodes is the number of nodes where something else sets one of the pool's keys.
	// +optional
	ConflictingNodes int32 `json:"conflictingNodes"`
	// capacity is the sum of the capacity of the nodes.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// allocatable is the sum of the allocatable resources of the nodes.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// schedulable is the sum of the allocatable resources of the nodes that are Ready and not cordoned.
	// +optional
	Schedulable corev1.ResourceList `json:"schedulable,omitempty"`
	// requested is the sum of the requests of the Pods on the nodes, with a precision of one percent of allocatable. It is
	// only set with reporting.requested.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
	// utilization is requested in percent of allocatable, rounded down.
	// +optional
	Utilization map[corev1.ResourceName]int32 `json:"utilization,omitempty"`
	// architectures counts nodes by CPU architecture.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Architectures []NodeGroup `json:"architectures,omitempty"`
	// zones counts nodes by topology.kubernetes.io/zone.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Zones []NodeGroup `json:"zones,omitempty"`
}

// NodeGroup counts the nodes of one group.
type NodeGroup struct {
	// name of the group.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// nodeCount is the number of nodes.
	// +required
	NodeCount int32 `json:"nodeCount"`
	// readyNodes is the number of nodes that are Ready.
	// +required
	ReadyNodes int32 `json:"readyNodes"`
}

// NodePoolPlan is what a dry run would write.
type NodePoolPlan struct {
	// nodes is the number of nodes that would be patched.
	// +required
	Nodes int32 `json:"nodes"`
	// changes are the first distinct changes, at most 50: "add label example.com/team", ...
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=512
	Changes []string `json:"changes,omitempty"`
}

// NodePoolClusterStatus is the state of the copy of a NodePool in one member.
type NodePoolClusterStatus struct {
	ClusterStatus `json:",inline"`

	// status is the status number of the copy.
	// +optional
	Status int32 `json:"status,omitempty"`
	// nodeCount is the number of nodes in the member.
	// +optional
	NodeCount int32 `json:"nodeCount"`
	// readyNodes is the number of nodes in the member that are Ready.
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// updatedNodes is the number of nodes in the member with the keys of the spec.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`
	// allocatable is the sum of the allocatable resources of the nodes in the member.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
}

// Utilize computes utilization from requested and allocatable.
func (c *NodePoolCounts) Utilize() {
	c.Utilization = nil
	for name, requested := range c.Requested {
		allocatable := c.Allocatable[name]
		if allocatable.Sign() <= 0 {
			continue
		}
		if c.Utilization == nil {
			c.Utilization = map[corev1.ResourceName]int32{}
		}
		percent := 100 * requested.AsApproximateFloat64() / allocatable.AsApproximateFloat64()
		c.Utilization[name] = int32(max(0, min(percent, math.MaxInt32)))
	}
}
