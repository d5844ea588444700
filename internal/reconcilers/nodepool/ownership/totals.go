// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// maxGroups limits resources, architectures and zones, because the operators of the member name them.
	maxGroups = 64
	// otherGroup sums what exceeds the limit.
	otherGroup = "other"
	// maxGroupName is the limit of the CRD.
	maxGroupName = 63
)

// totals adds nodes up.
type totals struct {
	nodes                                         flotillav1.NodePoolCounts
	capacity, allocatable, schedulable, requested corev1.ResourceList
	architectures, zones                          map[string]flotillav1.NodeGroup
}

func newTotals() *totals {
	// CPU and memory are listed, as zeros, for an empty pool as well.
	zeros := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0"), corev1.ResourceMemory: resource.MustParse("0")}
	return &totals{
		capacity: zeros.DeepCopy(), allocatable: zeros.DeepCopy(), schedulable: zeros.DeepCopy(), requested: zeros.DeepCopy(),
		architectures: map[string]flotillav1.NodeGroup{}, zones: map[string]flotillav1.NodeGroup{},
	}
}

func (t *totals) add(node *corev1.Node, requested corev1.ResourceList) {
	ready := IsReady(node)
	t.nodes.NodeCount++
	if ready {
		t.nodes.ReadyNodes++
	}
	if node.Spec.Unschedulable {
		t.nodes.UnschedulableNodes++
	}
	addResources(t.capacity, node.Status.Capacity)
	addResources(t.allocatable, node.Status.Allocatable)
	addResources(t.requested, requested)
	if ready && !node.Spec.Unschedulable {
		addResources(t.schedulable, node.Status.Allocatable)
	}
	addToGroup(t.architectures, cmp.Or(node.Status.NodeInfo.Architecture, node.Labels[corev1.LabelArchStable]), ready)
	addToGroup(t.zones, node.Labels[corev1.LabelTopologyZone], ready)
}

func (t *totals) counts() flotillav1.NodePoolCounts {
	counts := t.nodes
	counts.Capacity, counts.Allocatable, counts.Schedulable = bounded(t.capacity), bounded(t.allocatable), bounded(t.schedulable)
	counts.Architectures, counts.Zones = groups(t.architectures), groups(t.zones)
	return counts
}

func addResources(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// bounded keeps CPU, memory and the first of the other names.
func bounded(sum corev1.ResourceList) corev1.ResourceList {
	basic := func(name corev1.ResourceName) int {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			return 0
		}
		return 1
	}
	names := slices.SortedFunc(maps.Keys(sum), func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(basic(a), basic(b)), cmp.Compare(a, b))
	})
	out := make(corev1.ResourceList, min(len(names), maxGroups))
	for _, name := range names[:min(len(names), maxGroups)] {
		out[name] = sum[name]
	}
	return out
}

func addToGroup(all map[string]flotillav1.NodeGroup, name string, ready bool) {
	name = text.Clause(name, maxGroupName)
	if name == "" {
		return
	}
	group := all[name]
	group.Name = name
	group.NodeCount++
	if ready {
		group.ReadyNodes++
	}
	all[name] = group
}

// groups sorts by name and adds up what exceeds the limit under "other".
func groups(all map[string]flotillav1.NodeGroup) []flotillav1.NodeGroup {
	if len(all) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Values(all), func(a, b flotillav1.NodeGroup) int { return cmp.Compare(a.Name, b.Name) })
	if len(out) <= maxGroups {
		return out
	}
	other := flotillav1.NodeGroup{Name: otherGroup}
	kept := out[:0:0]
	for _, group := range out {
		if len(kept) < maxGroups-1 && group.Name != otherGroup {
			kept = append(kept, group)
			continue
		}
		other.NodeCount += group.NodeCount
		other.ReadyNodes += group.ReadyNodes
	}
	return append(kept, other)
}
