// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

// printMembers writes the table of members. If there are too many, those that need attention most are listed.
func (t *tool) printMembers(members []flotillav1.MemberCluster, how layout) {
	header := []string{"MEMBER", "READY", "REASON", "VERSION", "REDIS", "NODEPOOLS", "NODES", "CREDENTIAL", "SINCE"}
	if how.wide {
		header = append(header, "ENDPOINT", "LABELS", "MESSAGE")
	}
	members = slices.Clone(members)
	slices.SortStableFunc(members, how.compare)
	if limit := how.limit(maxMembers); len(members) > limit {
		defer t.Resultf("and %d more; --all shows them", len(members)-limit)
		t.Resultf("%s\n", causes(members))
		slices.SortStableFunc(members, func(a, b flotillav1.MemberCluster) int { return cmp.Compare(urgency(&a), urgency(&b)) })
		members = members[:limit]
	}
	rows := make([][]console.Cell, 0, len(members))
	for i := range members {
		member := &members[i]
		ready := condition.Of(member.Status.Conditions, flotillav1.ConditionReady)
		counts := flotillav1.MemberClusterSummary{}
		if member.Status.Summary != nil {
			counts = *member.Status.Summary
		}
		row := []console.Cell{
			{Text: member.Name},
			console.Status(ready.Status),
			reasonCell(member, ready),
			{Text: console.OrDash(member.Status.KubernetesVersion)},
			counted(counts.Redises, member), counted(counts.NodePools, member), counted(counts.Nodes, member),
			t.credentialCell(member),
			{Text: t.Ago(condition.Since(ready, member))},
		}
		if how.wide {
			row = append(row, console.Cell{Text: console.OrDash(member.Status.Endpoint)}, console.Cell{Text: console.OrDash(metav1.FormatLabelSelector(metav1.SetAsLabelSelector(member.Labels)))}, console.Cell{Text: ready.Message})
		}
		rows = append(rows, row)
	}
	t.Table(header, rows)
}

// reasonCell returns the cell of why a member is not ready or, if it is, why nothing is written to it.
func reasonCell(member *flotillav1.MemberCluster, ready metav1.Condition) console.Cell {
	if ready.Status == metav1.ConditionTrue {
		for _, kind := range []string{flotillav1.ConditionFrozen, flotillav1.ConditionPaused} {
			if condition.Of(member.Status.Conditions, kind).Status == metav1.ConditionTrue {
				return console.Cell{Text: kind, Colour: console.Yellow}
			}
		}
	}
	return console.Cell{Text: console.OrDash(ready.Reason)}
}

// compare orders members.
func (l layout) compare(a, b flotillav1.MemberCluster) int {
	switch l.sort {
	case bySince:
		readyOf := func(member *flotillav1.MemberCluster) time.Time {
			return condition.Since(condition.Of(member.Status.Conditions, flotillav1.ConditionReady), member).Time
		}
		return readyOf(&b).Compare(readyOf(&a))
	case byCredential:
		end, other := endOf(&a), endOf(&b)
		if end.IsZero() || other.IsZero() {
			// A credential that does not end comes last.
			return -end.Compare(other)
		}
		return end.Compare(other)
	}
	return strings.Compare(a.Name, b.Name)
}

// urgency ranks members: lower ones need attention first.
func urgency(member *flotillav1.MemberCluster) int {
	switch condition.Of(member.Status.Conditions, flotillav1.ConditionReady).Status {
	case metav1.ConditionFalse:
		return 0
	case metav1.ConditionUnknown:
		return 1
	}
	summary := member.Status.Summary
	unwell := func(counts flotillav1.ObjectCounts) bool { return counts.Ready < counts.Total }
	if summary != nil && (unwell(summary.Redises) || unwell(summary.NodePools) || unwell(summary.Nodes)) {
		return 2
	}
	return 3
}

// causes counts why members are not ready.
func causes(members []flotillav1.MemberCluster) string {
	counts := map[string]int{}
	for i := range members {
		if ready := condition.Of(members[i].Status.Conditions, flotillav1.ConditionReady); ready.Status != metav1.ConditionTrue {
			counts[console.OrDash(ready.Reason)]++
		}
	}
	if len(counts) == 0 {
		return "All members are ready"
	}
	var parts []string
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return "Members that are not ready: " + strings.Join(parts, ", ")
}

// counted returns the cell of how many are ready, which is yellow if some are not.
func counted(counts flotillav1.ObjectCounts, member *flotillav1.MemberCluster) console.Cell {
	if member.Status.Summary == nil {
		return console.Cell{Text: "-"}
	}
	shown := console.Cell{Text: fmt.Sprintf("%d/%d", counts.Ready, counts.Total)}
	if counts.Ready < counts.Total {
		shown.Colour = console.Yellow
	}
	return shown
}

// credentialCell returns the cell of when the credential in use expires.
func (t *tool) credentialCell(member *flotillav1.MemberCluster) console.Cell {
	known := member.Status.Credentials
	switch {
	case known == nil:
		return console.Cell{Text: "-"}
	case known.ExpirationTime == nil:
		return console.Cell{Text: "no end", Colour: console.Faint}
	}
	shown := console.Cell{Text: t.Until(known.ExpirationTime.Time)}
	switch condition.Accepted(member).Reason {
	case flotillav1.ReasonExpiresSoon:
		shown.Colour = console.Yellow
	case flotillav1.ReasonExpired:
		shown.Colour = console.Red
	}
	return shown
}
