// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/dashboard"
)

// withCondition lists what has a condition that needs a person. Members come first, because they may be the cause.
func (t *tool) withCondition(view *fleetView, conditionType string) [][]console.Cell {
	var rows [][]console.Cell
	add := func(name string, conditions []metav1.Condition) {
		found := condition.Of(conditions, conditionType)
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
	var found []dashboard.Row
	placed := map[string]bool{}
	for _, object := range view.objects {
		for _, name := range clustersOf(object) {
			placed[nameOf(object)+"@"+name] = true
		}
		found = append(found, unwellIn(object)...)
	}
	for i := range view.members {
		member := &view.members[i]
		found = append(found, attentionOf(member, func(name string) bool { return placed[name+"@"+member.Name] })...)
	}
	slices.SortStableFunc(found, func(a, b dashboard.Row) int { return strings.Compare(a.Object+"@"+a.Cluster, b.Object+"@"+b.Cluster) })
	rows := make([][]console.Cell, 0, len(found))
	for i := range found {
		row := &found[i]
		rows = append(rows, []console.Cell{
			{Text: row.Object}, {Text: row.Cluster}, console.Status(row.Ready), {Text: console.OrDash(row.Reason)}, {Text: t.Ago(row.Since)}, {Text: console.OrDash(row.Message)},
		})
	}
	return rows
}

// unwellIn lists where a hub object is not ready.
func unwellIn(object fleet.Object) []dashboard.Row {
	var rows []dashboard.Row
	add := func(cluster string, ready metav1.ConditionStatus, reason string, since *metav1.Time, message string) {
		rows = append(rows, dashboard.Row{Object: nameOf(object), Cluster: cluster, Ready: ready, Reason: reason, Since: since, Message: cmp.Or(message, condition.Meaning(reason))})
	}
	for _, entry := range entriesOf(object) {
		if entry.Ready != metav1.ConditionTrue {
			add(entry.Name, entry.Ready, entry.Reason, entry.Since, entry.Message)
		}
	}
	ready := condition.Of(*object.GetConditions(), flotillav1.ConditionReady)
	if len(rows) == 0 && ready.Status != metav1.ConditionTrue {
		add("-", ready.Status, ready.Reason, condition.Since(ready, object), ready.Message)
	}
	return rows
}

// attentionOf lists the objects of a member that are not ready. placed reports whether a hub object of that name is placed
// there.
func attentionOf(member *flotillav1.MemberCluster, placed func(name string) bool) []dashboard.Row {
	var rows []dashboard.Row
	for _, item := range member.Status.Attention {
		name := pathOf(item.Kind, item.Namespace, item.Name)
		// The hub object knows more about its copy, and sooner. An orphaned copy is not its own any more.
		if placed(name) && item.Reason != flotillav1.ReasonOrphaned {
			continue
		}
		rows = append(rows, dashboard.Row{Object: name, Cluster: member.Name, Ready: metav1.ConditionFalse, Reason: item.Reason, Since: item.Since, Message: condition.Meaning(item.Reason)})
	}
	return rows
}
