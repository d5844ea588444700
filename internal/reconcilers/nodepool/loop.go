// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// maxForesight is how many plans are followed. Pools that have not come to rest by then are taken for a loop.
const maxForesight = 64

// loopAfter follows a plan to the node that it makes, to the plan for that node, and so on, and returns the pools that
// would join and leave for ever: one selects nodes by the labels that another sets or takes away. Nothing is remembered
// for it, so that it holds after a restart of the manager and ends when a person changes a pool.
func loopAfter(in input, looping sets.Set[string], p plan) sets.Set[string] {
	if !movesNode(in.views, in.node.Labels, p) {
		return nil
	}
	var moved []sets.Set[string]
	seen := map[string]int{}
	for step := range maxForesight {
		state := fmt.Sprint(in.node.Labels, in.node.Annotations[flotillav1.AnnotationNodeRecord])
		if start, again := seen[state]; again {
			return union(moved[start:])
		}
		seen[state] = step
		moved = append(moved, sets.New[string]())
		for _, v := range slices.Concat(p.joined, p.left) {
			moved[step].Insert(v.name)
		}
		in.node = p.appliedTo(in.node)
		if p = planWithout(in, recordOf(in.node), looping); p.empty() {
			return nil
		}
	}
	return union(moved)
}

func union(all []sets.Set[string]) sets.Set[string] {
	out := sets.New[string]()
	for _, some := range all {
		out = out.Union(some)
	}
	return out
}

// movesNode reports whether the labels of a plan make the node join or leave a pool.
func movesNode(views []*view, before map[string]string, p plan) bool {
	if len(p.labels) == 0 {
		return false
	}
	after := changed(before, p.labels)
	return slices.ContainsFunc(views, func(v *view) bool {
		return v.selector.Matches(labels.Set(before)) != v.selector.Matches(labels.Set(after))
	})
}

// appliedTo returns the node as the plan makes it. The Node it is made from stays as it is.
func (p plan) appliedTo(node *corev1.Node) *corev1.Node {
	after := *node
	after.Labels = changed(node.Labels, p.labels)
	after.Annotations = changed(node.Annotations, p.annotations)
	if p.recordChanged {
		delete(after.Annotations, flotillav1.AnnotationNodeRecord)
		if p.record != "" {
			after.Annotations[flotillav1.AnnotationNodeRecord] = p.record
		}
	}
	if p.taintsChanged {
		after.Spec.Taints = p.taints
	}
	return &after
}

// changed returns the values with the changes made; nil removes.
func changed(values map[string]string, changes map[string]*string) map[string]string {
	after := maps.Clone(values)
	if after == nil {
		after = map[string]string{}
	}
	for name, value := range changes {
		if value == nil {
			delete(after, name)
			continue
		}
		after[name] = *value
	}
	return after
}

// loopLabels returns the labels by which pools decide about each other: one sets them and one selects by them.
func loopLabels(views []*view, names sets.Set[string]) []string {
	set, selected := sets.New[string](), sets.New[string]()
	for _, v := range views {
		if !names.Has(v.name) {
			continue
		}
		for _, w := range v.wishes {
			if w.key.kind == kindLabel {
				set.Insert(w.key.name)
			}
		}
		requirements, _ := v.selector.Requirements()
		for i := range requirements {
			selected.Insert(requirements[i].Key())
		}
	}
	return sets.List(set.Intersection(selected))
}
