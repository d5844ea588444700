// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePoolStatus is what the nodes of a pool are; on the hub, added up over the members that can be seen.
type NodePoolStatus struct {
	// conditions of the pool.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=24
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that this status is about; -1 before there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// status in one number: 200 all applied, 206 some members unreachable or, in a member, changes not applied yet,
	// 409 conflicts, 500 apply errors, 503 none reachable.
	// +optional
	Status int32 `json:"status"`

	NodePoolCounts `json:",inline"`

	// ownedKeys are the keys that this pool's spec has or had and may still be on nodes:
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

	// clusters is what is known about each member's copy, sorted by name; at most 100, the unwell first when there are more.
	// Each name is there once.
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
	// updatedNodes is the number of nodes that carry what the spec says.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`
	// conflictingNodes is the number of nodes where something else sets one of the pool's keys.
	// +optional
	ConflictingNodes int32 `json:"conflictingNodes"`
	// capacity sums the nodes' capacity.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// allocatable sums what the nodes can give to Pods.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// schedulable sums allocatable over nodes that are Ready and not cordoned.
	// +optional
	Schedulable corev1.ResourceList `json:"schedulable,omitempty"`
	// requested sums what the Pods on the nodes ask for, to one percent of allocatable. Only with reporting.requested.
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

// NodeGroup counts nodes that have something in common.
type NodeGroup struct {
	// name of what they have in common.
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

// NodePoolClusterStatus is what is known about the copy of a NodePool in one member.
type NodePoolClusterStatus struct {
	ClusterStatus `json:",inline"`

	// status is the copy's number.
	// +optional
	Status int32 `json:"status,omitempty"`
	// nodeCount is the number of nodes there.
	// +optional
	NodeCount int32 `json:"nodeCount"`
	// readyNodes is the number of nodes there that are Ready.
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// updatedNodes is the number of nodes there that carry what the spec says.
	// +optional
	UpdatedNodes int32 `json:"updatedNodes"`
	// allocatable sums what the nodes there can give to Pods.
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
