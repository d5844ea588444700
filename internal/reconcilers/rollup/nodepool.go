// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

// The values of the status number of a NodePool, the worst one first.
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
		return &flotillav1.NodePool{ObjectMeta: named(object), Status: status}
	},
	draft: func(object fleet.Object) fleet.Object {
		draft := *object.(*flotillav1.NodePool)
		placedIn := draft.Status.PlacedIn
		draft.Status.PlacedIn = nil
		draft.Status = *draft.Status.DeepCopy()
		draft.Status.PlacedIn = placedIn
		return &draft
	},
	numbers: func(copied fleet.Object) any {
		seen := copied.(*flotillav1.NodePool).Status
		return &nodePoolNumbers{status: seen.Status, counts: seen.NodePoolCounts}
	},
	published: func(hubObject fleet.Object) map[string]any {
		published := map[string]any{}
		for _, entry := range hubObject.(*flotillav1.NodePool).Status.Clusters {
			published[entry.Name] = numbersOf(entry)
		}
		return published
	},
	shown: func(seen *cluster, updated bool, published any) any {
		numbers, known := seen.numbers.(*nodePoolNumbers)
		kept, remembered := seen.kept.(*nodePoolNumbers)
		switch {
		case known && !updated:
			shown := *numbers
			shown.counts.UpdatedNodes = 0
			return &shown
		case known || seen.Visible():
			return seen.numbers
		case published == nil && remembered:
			return numbersOf(nodePoolEntry(kept.status, kept.counts))
		}
		return published
	},
	newSums: func() sums { return newNodePoolSums() },
}

// nodePoolNumbers are the counts of a NodePool in a member.
type nodePoolNumbers struct {
	status int32
	counts flotillav1.NodePoolCounts
}

// numbersOf returns the numbers of a NodePool of which only the entry is known.
func numbersOf(entry flotillav1.NodePoolClusterStatus) *nodePoolNumbers {
	return &nodePoolNumbers{status: entry.Status, counts: flotillav1.NodePoolCounts{
		NodeCount: entry.NodeCount, ReadyNodes: entry.ReadyNodes, UpdatedNodes: entry.UpdatedNodes, Allocatable: entry.Allocatable,
	}}
}

// nodePoolSums are the sums over the visible pools.
type nodePoolSums struct {
	nodes, ready, unschedulable, updated, conflicting int64
	capacity, allocatable, schedulable, requested     resourceSums
	architectures, zones                              groupSums
	// unasked counts the pools with nodes whose requests are unknown, and undecided those that repeat the published entry.
	unasked, undecided int32
	verdict            verdict
}

func newNodePoolSums() *nodePoolSums {
	return &nodePoolSums{
		capacity: resourceSums{}, allocatable: resourceSums{}, schedulable: resourceSums{}, requested: resourceSums{},
		architectures: groupSums{}, zones: groupSums{},
	}
}

func (s *nodePoolSums) count(r *row, times int32) {
	seen, known := r.shown.(*nodePoolNumbers)
	if !known {
		seen = &nodePoolNumbers{}
	}
	s.verdict.count(r.entry, publishable(seen.status), times)
	if !r.entry.Visible {
		return
	}
	if r.undecided {
		s.undecided += times
	}
	counts := seen.counts
	if counts.NodeCount != 0 && len(counts.Requested) == 0 {
		s.unasked += times
	}
	add(&s.nodes, counts.NodeCount, times)
	add(&s.ready, counts.ReadyNodes, times)
	add(&s.unschedulable, counts.UnschedulableNodes, times)
	add(&s.updated, counts.UpdatedNodes, times)
	add(&s.conflicting, counts.ConflictingNodes, times)
	s.capacity.count(counts.Capacity, times)
	s.allocatable.count(counts.Allocatable, times)
	s.schedulable.count(counts.Schedulable, times)
	s.requested.count(counts.Requested, times)
	s.architectures.count(counts.Architectures, times)
	s.zones.count(counts.Zones, times)
}

func (s *nodePoolSums) fill(hubObject fleet.Object, listed []*row) {
	status := &hubObject.(*flotillav1.NodePool).Status
	published := status.NodePoolCounts
	status.ObservedGeneration = hubObject.GetGeneration()
	status.NodePoolCounts = flotillav1.NodePoolCounts{
		NodeCount: total(s.nodes), ReadyNodes: total(s.ready), UnschedulableNodes: total(s.unschedulable),
		UpdatedNodes: total(s.updated), ConflictingNodes: total(s.conflicting),
		Capacity: s.capacity.list(), Allocatable: s.allocatable.list(), Schedulable: s.schedulable.list(),
		Architectures: s.architectures.list(), Zones: s.zones.list(),
	}
	if s.unasked == 0 {
		// A partial sum would look like free capacity that does not exist.
		status.Requested = s.requested.list()
	}
	status.Utilize()
	if s.undecided > 0 {
		// The list omits these clusters, so the published numbers of an undecided cluster cannot be separated from the sum.
		status.UnschedulableNodes, status.ConflictingNodes = published.UnschedulableNodes, published.ConflictingNodes
		status.Capacity, status.Schedulable = published.Capacity, published.Schedulable
		status.Requested, status.Utilization = published.Requested, published.Utilization
		status.Architectures, status.Zones = published.Architectures, published.Zones
	}
	status.OwnedKeys, status.Plan, status.Clusters = nil, nil, nil
	for _, row := range listed {
		entry := flotillav1.NodePoolClusterStatus{}
		if seen, known := row.shown.(*nodePoolNumbers); known {
			entry = nodePoolEntry(seen.status, seen.counts)
		}
		entry.ClusterStatus = row.entry.ClusterStatus
		status.Clusters = append(status.Clusters, entry)
	}
	status.Status = s.verdict.status()
}

// publishable returns the status number of a member, or 0 if it is invalid.
func publishable(status int32) int32 {
	switch status {
	case statusNoneReachable, statusApplyErrors, statusConflicts, statusPartial, statusApplied:
		return status
	}
	return 0
}

func nodePoolEntry(status int32, counts flotillav1.NodePoolCounts) flotillav1.NodePoolClusterStatus {
	return flotillav1.NodePoolClusterStatus{
		Status:       publishable(status),
		NodeCount:    sanitize.Count(counts.NodeCount),
		ReadyNodes:   sanitize.Count(counts.ReadyNodes),
		UpdatedNodes: sanitize.Count(counts.UpdatedNodes),
		Allocatable:  sanitize.Resources(counts.Allocatable),
	}
}

// verdict counts the chosen clusters by their state.
type verdict struct{ all, visible, failed, conflicting, partial int32 }

func (v *verdict) count(entry fleet.Entry, status, times int32) {
	if entry.Fate == fleet.FateRemove {
		return
	}
	v.all += times
	if !entry.Visible {
		v.partial += times
		return
	}
	v.visible += times
	conflict := entry.Reason == flotillav1.ReasonNameConflict || status == statusConflicts
	if entry.Failed && !conflict || status == statusApplyErrors {
		v.failed += times
	}
	if conflict {
		v.conflicting += times
	}
	if !entry.Applied && entry.Fate == fleet.FateApply || status != statusApplied {
		v.partial += times
	}
}

// status returns the status number of a NodePool on the hub: the worst state of any chosen cluster, or 0 if none is
// chosen. A change in progress counts as partial.
func (v *verdict) status() int32 {
	switch {
	case v.all == 0:
		return 0
	case v.visible == 0:
		return statusNoneReachable
	case v.failed > 0:
		return statusApplyErrors
	case v.conflicting > 0:
		return statusConflicts
	case v.partial > 0:
		return statusPartial
	default:
		return statusApplied
	}
}
