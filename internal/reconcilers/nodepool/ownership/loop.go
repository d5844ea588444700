// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// maxForesight is how many successive plans are followed. Pools still moving by then count as a loop.
const maxForesight = 64

// loopAfter applies a plan, plans for the resulting node, and so on, and returns the pools that would join and leave
// forever: one selects nodes by labels that another sets or removes. It depends on nothing remembered, so the answer is the
// same after a restart and changes when a person changes a pool.
func loopAfter(in PlanInput, looping sets.Set[string], p Plan) sets.Set[string] {
	if !movesNode(in.Views, in.Node.Labels, p) {
		return nil
	}
	var moved [][]string
	seen := map[string]int{}
	for step := range maxForesight {
		state := fmt.Sprint(in.Node.Labels, in.Node.Annotations[flotillav1.AnnotationNodeRecord])
		if start, again := seen[state]; again {
			return sets.New(slices.Concat(moved[start:]...)...)
		}
		seen[state] = step
		moved = append(moved, nil)
		for _, pool := range slices.Concat(p.Joined, p.Left) {
			moved[step] = append(moved[step], pool.Name)
		}
		in.Node = p.appliedTo(in.Node)
		if p = planWithout(in, recordOf(in.Node), looping); p.Empty() {
			return nil
		}
	}
	return sets.New(slices.Concat(moved...)...)
}

// movesNode reports whether the labels of a plan make the node join or leave a pool.
func movesNode(views []*View, before map[string]string, p Plan) bool {
	if len(p.labels) == 0 {
		return false
	}
	after := changed(before, p.labels)
	return slices.ContainsFunc(views, func(v *View) bool {
		return v.selector.Matches(labels.Set(before)) != v.selector.Matches(labels.Set(after))
	})
}

// loopLabels returns the labels through which the named pools affect each other: those set by one and selected by one.
func loopLabels(views []*View, names sets.Set[string]) []string {
	set, selected := sets.New[string](), sets.New[string]()
	for _, v := range views {
		if !names.Has(v.Pool.Name) {
			continue
		}
		for _, d := range v.desired {
			if d.key.Kind == Label {
				set.Insert(d.key.Name)
			}
		}
		requirements, _ := v.selector.Requirements()
		for i := range requirements {
			selected.Insert(requirements[i].Key())
		}
	}
	return sets.List(set.Intersection(selected))
}
