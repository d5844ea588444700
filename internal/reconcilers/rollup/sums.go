// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

// resourceSums are sums of quantities, as of sanitize.AddResources, that also support subtraction.
type resourceSums map[corev1.ResourceName]*resourceSum

type resourceSum struct {
	total resource.Quantity
	// lists is the number of lists with the name, and formats counts those with a non-zero quantity by its format.
	lists   int32
	formats map[resource.Format]int32
}

func (s resourceSums) count(list corev1.ResourceList, times int32) {
	for name, quantity := range sanitize.Resources(list) {
		sum := s[name]
		if sum == nil {
			sum = &resourceSum{formats: map[resource.Format]int32{}}
			s[name] = sum
		}
		if sum.lists += times; sum.lists == 0 {
			delete(s, name)
			continue
		}
		if times > 0 {
			sum.total.Add(quantity)
		} else {
			sum.total.Sub(quantity)
		}
		if !quantity.IsZero() {
			sum.formats[quantity.Format] += times
		}
	}
}

// list returns the sums. If members use several formats, the binary one is used.
func (s resourceSums) list() corev1.ResourceList {
	if len(s) == 0 {
		return nil
	}
	list := make(corev1.ResourceList, len(s))
	for name, sum := range s {
		total := sum.total.DeepCopy()
		for _, format := range []resource.Format{resource.DecimalExponent, resource.DecimalSI, resource.BinarySI} {
			if sum.formats[format] > 0 {
				total.Format = format
			}
		}
		list[name] = total
	}
	return sanitize.Resources(list)
}

// groupSums are sums of node counts, as of sanitize.AddGroups, that also support subtraction.
type groupSums map[string]*groupSum

type groupSum struct {
	nodes, ready int64
	// lists is the number of lists with the name.
	lists int32
}

func (s groupSums) count(groups []flotillav1.NodeGroup, times int32) {
	for _, group := range sanitize.AddGroups(nil, groups) {
		sum := s[group.Name]
		if sum == nil {
			sum = &groupSum{}
			s[group.Name] = sum
		}
		if sum.lists += times; sum.lists == 0 {
			delete(s, group.Name)
			continue
		}
		add(&sum.nodes, group.NodeCount, times)
		add(&sum.ready, group.ReadyNodes, times)
	}
}

func (s groupSums) list() []flotillav1.NodeGroup {
	groups := make([]flotillav1.NodeGroup, 0, len(s))
	for name, sum := range s {
		groups = append(groups, flotillav1.NodeGroup{Name: name, NodeCount: total(sum.nodes), ReadyNodes: total(sum.ready)})
	}
	return sanitize.AddGroups(nil, groups)
}
