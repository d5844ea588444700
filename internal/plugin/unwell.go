// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// withCondition lists what has a condition that needs a person. Members come first, because they may be the cause.
func (t *tool) withCondition(view *fleetView, conditionType string) [][]console.Cell {
	var rows [][]console.Cell
	add := func(name string, conditions []metav1.Condition) {
		found := condition(conditions, conditionType)
		if found.Status == metav1.ConditionTrue {
			rows = append(rows, []console.Cell{{Text: name}, {Text: found.Reason, Colour: console.Red}, {Text: t.Ago(&found.LastTransitionTime)}, {Text: found.Message}})
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

// unwell lists what is not ready: hub objects by cluster, and objects that members have of their own.
func (t *tool) unwell(view *fleetView) [][]console.Cell {
	var rows [][]console.Cell
	add := func(name, cluster string, ready metav1.ConditionStatus, reason string, since *metav1.Time, message string) {
		rows = append(rows, []console.Cell{
			{Text: name}, {Text: cluster}, console.Status(ready), {Text: console.OrDash(reason)}, {Text: t.Ago(since)}, {Text: console.OrDash(cmp.Or(message, meaningOf(reason)))},
		})
	}
	placed := map[string]bool{}
	for _, object := range view.objects {
		entries := 0
		for _, name := range clustersOf(object) {
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
			name := pathOf(item.Kind, item.Namespace, item.Name)
			// The hub object knows more about its copy, and sooner. An orphaned copy is not its own any more.
			if placed[name+"@"+member.Name] && item.Reason != flotillav1.ReasonOrphaned {
				continue
			}
			add(name, member.Name, metav1.ConditionFalse, item.Reason, item.Since, "")
		}
	}
	slices.SortStableFunc(rows, func(a, b []console.Cell) int {
		return strings.Compare(a[0].Text+"@"+a[1].Text, b[0].Text+"@"+b[1].Text)
	})
	return rows
}
