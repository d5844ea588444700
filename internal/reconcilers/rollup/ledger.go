// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"maps"
	"slices"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

// row is the contribution of one cluster to the totals of a hub object. Rows are immutable.
type row struct {
	entry fleet.Entry
	// shown are the numbers of the entry, as returned by numbers of the kind, or nil if there are none.
	shown any
	// asked is the desired number of replicas of a Redis.
	asked int32
	// undecided reports whether the entry repeats the published one.
	undecided bool
}

// countsAs reports whether two rows contribute the same to the totals.
func (r *row) countsAs(other *row) bool {
	entry := other.entry
	entry.Since = r.entry.Since
	return r.entry == entry && r.shown == other.shown && r.asked == other.asked && r.undecided == other.undecided
}

// ledger maintains the totals of a view, so that a pass processes only the rows that have changed. The zero value has
// no sums.
type ledger struct {
	counts flotillav1.ClusterCounts
	sums   sums
	// unwell are the names of the clusters for which Well is false.
	unwell map[string]bool
}

// count adds a row with a factor; -1 subtracts it again.
func (l *ledger) count(r *row, times int32) {
	r.entry.CountInto(&l.counts, times)
	l.sums.count(r, times)
	switch {
	case r.entry.Well():
	case times > 0:
		l.unwell[r.entry.Name] = true
	default:
		delete(l.unwell, r.entry.Name)
	}
}

func newLedger(kind Kind) ledger { return ledger{sums: kind.newSums(), unwell: map[string]bool{}} }

// account computes the rows of stale clusters, and of those that start or stop waiting for their turn. All other rows
// would not change: the entry of an unchanged cluster repeats the previous one.
func (v *view) account(kind Kind, hubObject fleet.Object, stale []*cluster, held []string, now time.Time) {
	for _, name := range difference(v.held, held) {
		if found := v.clusters[name]; found != nil && !v.stale[name] {
			found.Previous = found.lastEntry()
			stale = append(stale, found)
		}
	}
	v.held = held
	published := kind.published(hubObject)
	for _, seen := range stale {
		seen.Held = contains(held, seen.Name)
		made := &row{entry: fleet.EntryOf(seen.Observation, hubObject.GetGeneration(), now), undecided: seen.Undecided()}
		made.shown = kind.shown(seen, seen.updated(made.entry.Applied), published[seen.Name])
		if seen.Fate == fleet.FateApply && seen.WantError == nil {
			made.asked = replicasOf(seen, made.shown)
		}
		if !seen.counted {
			v.ledger.count(made, 1)
		} else if !made.countsAs(seen.row) {
			v.ledger.count(seen.row, -1)
			v.ledger.count(made, 1)
		}
		// The row must not keep the published status in memory.
		seen.row, seen.counted, seen.Previous = made, true, nil
		v.unsaid[seen.Name] = true
	}
	v.stale = map[string]bool{}
}

// listing returns the rows that the hub object lists and the entries of all clusters that are not well, both sorted by
// name, and the number of omitted rows.
func (v *view) listing() (listed []*row, unwell []fleet.Entry, omitted int32) {
	for _, name := range slices.Sorted(maps.Keys(v.ledger.unwell)) {
		unwell = append(unwell, v.clusters[name].row.entry)
	}
	// At most MaxEntries well clusters can be listed.
	candidates := slices.Clone(unwell)
	for _, name := range v.sorted() {
		if len(candidates) == len(unwell)+fleet.MaxEntries {
			break
		}
		if entry := v.clusters[name].row.entry; entry.Well() {
			candidates = append(candidates, entry)
		}
	}
	names, _ := fleet.Listed(candidates)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		listed = append(listed, v.clusters[name].row)
	}
	return listed, unwell, int32(len(v.clusters) - len(listed))
}

// unsaidClusters returns the clusters without events since their rows were computed, sorted.
func (v *view) unsaidClusters() []*cluster {
	var unsaid []*cluster
	for _, name := range slices.Sorted(maps.Keys(v.unsaid)) {
		unsaid = append(unsaid, v.clusters[name])
	}
	return unsaid
}

// said records that the events for all rows have been recorded.
func (v *view) said(unsaid []*cluster) {
	for _, seen := range unsaid {
		seen.said = seen.lastEntry()
	}
	v.unsaid = map[string]bool{}
}

// replicasOf returns the desired replicas of a copy. If the hub leaves them to the member, the spec of the copy is
// used; while the copy is not visible, the last number of Pods.
func replicasOf(seen *cluster, shown any) int32 {
	if replicas, ok := seen.Want.Spec["replicas"].(int64); ok {
		return int32(replicas)
	}
	for _, numbers := range []any{seen.numbers, seen.kept} {
		if seen, ok := numbers.(redisNumbers); ok {
			return sanitize.Count(seen.asked)
		}
	}
	last, _ := shown.(redisNumbers)
	return cmp.Or(sanitize.Count(last.replicas), 1)
}
