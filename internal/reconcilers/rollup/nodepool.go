// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"slices"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// The values of a NodePool's status number, worst first.
const (
	statusNoneReachable = 503
	statusApplyErrors   = 500
	statusConflicts     = 409
	statusPartial       = 206
	statusApplied       = 200
)

var nodePoolKind = Kind{
	Kind: fleet.NodePool,
	written: func(object fleet.Object) fleet.Object {
		status := object.(*flotillav1.NodePool).Status
		status.PlacedIn = nil
		return &flotillav1.NodePool{Status: status}
	},
	numbers: func(copied fleet.Object) any {
		seen := copied.(*flotillav1.NodePool).Status
		return &nodePoolNumbers{status: seen.Status, counts: seen.NodePoolCounts}
	},
	fill: func(hubObject fleet.Object, rows []row) { fillNodePool(hubObject.(*flotillav1.NodePool), rows) },
}

// nodePoolNumbers are what a NodePool in a member counts.
type nodePoolNumbers struct {
	status int32
	counts flotillav1.NodePoolCounts
}

// fillNodePool adds up the pools that can be seen.
func fillNodePool(hubObject *flotillav1.NodePool, rows []row) {
	status := &hubObject.Status
	previous := map[string]flotillav1.NodePoolClusterStatus{}
	for _, entry := range status.Clusters {
		previous[entry.Name] = entry
	}
	published := status.NodePoolCounts
	status.ObservedGeneration = hubObject.Generation
	status.NodePoolCounts = flotillav1.NodePoolCounts{}
	status.OwnedKeys, status.Plan, status.Clusters = nil, nil, nil
	numbers := make([]numbered, 0, len(rows))
	requestsKnown := true
	for _, row := range rows {
		entry := flotillav1.NodePoolClusterStatus{}
		counts := flotillav1.NodePoolCounts{}
		switch {
		case row.numbers != nil:
			seen := row.numbers.(*nodePoolNumbers)
			counts = seen.counts
			if !row.updated() {
				counts.UpdatedNodes = 0
			}
			entry = nodePoolEntry(seen.status, counts)
		case !row.Visible():
			published, listed := previous[row.Name]
			if kept, ok := row.kept.(*nodePoolNumbers); ok && !listed {
				published = nodePoolEntry(kept.status, kept.counts)
			}
			entry = published
			counts = flotillav1.NodePoolCounts{
				NodeCount: entry.NodeCount, ReadyNodes: entry.ReadyNodes, UpdatedNodes: entry.UpdatedNodes, Allocatable: entry.Allocatable,
			}
		}
		entry.ClusterStatus = row.entry.ClusterStatus
		if row.entry.Visible {
			addCounts(&status.NodePoolCounts, counts)
			requestsKnown = requestsKnown && (counts.NodeCount == 0 || len(counts.Requested) > 0)
		}
		numbers = append(numbers, numbered{row.entry, entry.Status})
		if row.listed {
			status.Clusters = append(status.Clusters, entry)
		}
	}
	if !requestsKnown {
		// Half a sum would look like room that is not there.
		status.Requested = nil
	}
	status.Utilize()
	if slices.ContainsFunc(rows, func(r row) bool { return r.Undecided() && r.entry.Visible }) {
		// The list does not have these, so what was published about an undecided cluster cannot be told apart.
		status.UnschedulableNodes, status.ConflictingNodes = published.UnschedulableNodes, published.ConflictingNodes
		status.Capacity, status.Schedulable = published.Capacity, published.Schedulable
		status.Requested, status.Utilization = published.Requested, published.Utilization
		status.Architectures, status.Zones = published.Architectures, published.Zones
	}
	status.Status = statusOf(numbers)
}

func nodePoolEntry(status int32, counts flotillav1.NodePoolCounts) flotillav1.NodePoolClusterStatus {
	if !slices.Contains([]int32{statusNoneReachable, statusApplyErrors, statusConflicts, statusPartial, statusApplied}, status) {
		status = 0
	}
	return flotillav1.NodePoolClusterStatus{
		Status:       status,
		NodeCount:    fleet.Count(counts.NodeCount),
		ReadyNodes:   fleet.Count(counts.ReadyNodes),
		UpdatedNodes: fleet.Count(counts.UpdatedNodes),
		Allocatable:  fleet.Resources(counts.Allocatable),
	}
}

func addCounts(sum *flotillav1.NodePoolCounts, counts flotillav1.NodePoolCounts) {
	sum.NodeCount = fleet.Sum(sum.NodeCount, counts.NodeCount)
	sum.ReadyNodes = fleet.Sum(sum.ReadyNodes, counts.ReadyNodes)
	sum.UnschedulableNodes = fleet.Sum(sum.UnschedulableNodes, counts.UnschedulableNodes)
	sum.UpdatedNodes = fleet.Sum(sum.UpdatedNodes, counts.UpdatedNodes)
	sum.ConflictingNodes = fleet.Sum(sum.ConflictingNodes, counts.ConflictingNodes)
	sum.Capacity = fleet.AddResources(sum.Capacity, counts.Capacity)
	sum.Allocatable = fleet.AddResources(sum.Allocatable, counts.Allocatable)
	sum.Schedulable = fleet.AddResources(sum.Schedulable, counts.Schedulable)
	sum.Requested = fleet.AddResources(sum.Requested, counts.Requested)
	sum.Architectures = fleet.AddGroups(sum.Architectures, counts.Architectures)
	sum.Zones = fleet.AddGroups(sum.Zones, counts.Zones)
}

// numbered is a cluster's entry with the number that its copy shows.
type numbered struct {
	fleet.Entry
	status int32
}

// statusOf is the one number that a NodePool on the hub shows: the worst thing that is true of a chosen cluster, and 0
// when none is chosen. A change that is still on its way counts as partial.
func statusOf(entries []numbered) int32 {
	entries = slices.DeleteFunc(slices.Clone(entries), func(e numbered) bool { return e.Fate == fleet.FateRemove })
	visible := func(e numbered) bool { return e.Visible }
	conflict := func(e numbered) bool { return e.Reason == flotillav1.ReasonNameConflict || e.status == statusConflicts }
	switch {
	case len(entries) == 0:
		return 0
	case !slices.ContainsFunc(entries, visible):
		return statusNoneReachable
	case slices.ContainsFunc(entries, func(e numbered) bool {
		return e.Visible && (e.Failed && !conflict(e) || e.status == statusApplyErrors)
	}):
		return statusApplyErrors
	case slices.ContainsFunc(entries, func(e numbered) bool { return e.Visible && conflict(e) }):
		return statusConflicts
	case slices.ContainsFunc(entries, func(e numbered) bool {
		return !e.Visible || !e.Applied && e.Fate == fleet.FateApply || e.status != statusApplied
	}):
		return statusPartial
	default:
		return statusApplied
	}
}
