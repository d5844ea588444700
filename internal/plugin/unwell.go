// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// withCondition lists what has a condition that a person has to look at: members first, because it may be why objects have it.
func (t *tool) withCondition(view *fleetView, conditionType string) [][]cell {
	var rows [][]cell
	add := func(name string, conditions []metav1.Condition) {
		found := condition(conditions, conditionType)
		if found.Status == metav1.ConditionTrue {
			rows = append(rows, []cell{{text: name}, {found.Reason, red}, {text: t.ago(&found.LastTransitionTime)}, {text: found.Message}})
		}
	}
	for i := range view.members {
		add("membercluster/"+view.members[i].Name, view.members[i].Status.Conditions)
	}
	for _, object := range view.objects {
		add(nameOf(object), *object.GetConditions())
	}
	return rows
}

// unwell lists what is not well: what is placed from the hub, by cluster, and what members have of their own.
func (t *tool) unwell(view *fleetView) [][]cell {
	var rows [][]cell
	add := func(name, cluster string, ready metav1.ConditionStatus, reason string, since *metav1.Time, message string) {
		rows = append(rows, []cell{
			{text: name}, {text: cluster}, {string(ready), forStatus(ready)}, {text: or(reason)}, {text: t.ago(since)}, {text: or(cmp.Or(message, meaningOf(reason)))},
		})
	}
	placed := map[string]bool{}
	for _, object := range view.objects {
		entries := 0
		for _, name := range clustersOf(object, "") {
			placed[nameOf(object)+"@"+name] = true
		}
		for _, entry := range entriesOf(object) {
			if entry.Ready == metav1.ConditionTrue {
				continue
			}
			entries++
			add(nameOf(object), entry.Name, entry.Ready, entry.Reason, entry.Since, entry.Message)
		}
		ready := condition(*object.GetConditions(), flotillav1.ConditionReady)
		if entries == 0 && ready.Status != metav1.ConditionTrue {
			add(nameOf(object), "-", ready.Status, ready.Reason, since(ready, object), ready.Message)
		}
	}
	for i := range view.members {
		member := &view.members[i]
		for _, item := range member.Status.Attention {
			name := strings.ReplaceAll(strings.ToLower(item.Kind)+"/"+item.Namespace+"/"+item.Name, "//", "/")
			// The hub object knows more about its copy, and sooner. What was given up is no copy of it any more.
			if placed[name+"@"+member.Name] && item.Reason != flotillav1.ReasonOrphaned {
				continue
			}
			add(name, member.Name, metav1.ConditionFalse, item.Reason, item.Since, "")
		}
	}
	slices.SortStableFunc(rows, func(a, b []cell) int { return strings.Compare(a[0].text+"@"+a[1].text, b[0].text+"@"+b[1].text) })
	return rows
}

// since is when a condition changed, or when its object was created if it does not have the condition yet.
func since(c metav1.Condition, object metav1.Object) *metav1.Time {
	if c.LastTransitionTime.IsZero() {
		return new(object.GetCreationTimestamp())
	}
	return &c.LastTransitionTime
}
