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
)

// row is one cluster in the totals of a hub object. It is made anew and never changed.
type row struct {
	entry fleet.Entry
	// shown are the numbers of the entry, as numbers of the kind returns them; nil when there are none.
	shown any
	// asked is how many replicas of a Redis are asked for.
	asked int32
	// undecided says that the entry repeats what was published.
	undecided bool
}

// countsAs reports whether two rows are the same in the totals.
func (r *row) countsAs(other *row) bool {
	entry := other.entry
	entry.Since = r.entry.Since
	return r.entry == entry && r.shown == other.shown && r.asked == other.asked && r.undecided == other.undecided
}

// ledger adds up the rows of a view, so that a pass touches only those that have changed. The zero value has no sums.
type ledger struct {
	counts flotillav1.ClusterCounts
	sums   sums
	// unwell are the names of the clusters that are not well.
	unwell map[string]bool
}

// count adds a row so many times; -1 takes it away again.
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

// account makes the rows of the clusters that are stale, and of those that begin or end to wait for their turn. All others
// would become what they are: the entry of a cluster that nothing has happened to repeats the one before.
func (v *view) account(kind Kind, hubObject fleet.Object, stale []*cluster, held []string, now time.Time) {
	for _, name := range difference(v.held, held) {
		if found := v.clusters[name]; found != nil && !v.stale[name] {
			found.Previous = found.told()
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
		// What was published is not kept alive by what is made of it.
		seen.row, seen.counted, seen.Previous = made, true, nil
		v.unsaid[seen.Name] = true
	}
	v.stale = map[string]bool{}
}

// listing returns the rows that the hub object lists, the entries of all clusters that are not well, both sorted by name,
// and how many rows are left out.
func (v *view) listing() (listed []*row, unwell []fleet.Entry, omitted int32) {
	for _, name := range slices.Sorted(maps.Keys(v.ledger.unwell)) {
		unwell = append(unwell, v.clusters[name].row.entry)
	}
	// No more of those that are well can be listed.
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

// unsaidClusters returns the clusters that no events have been about since their rows were made, sorted.
func (v *view) unsaidClusters() []*cluster {
	var unsaid []*cluster
	for _, name := range slices.Sorted(maps.Keys(v.unsaid)) {
		unsaid = append(unsaid, v.clusters[name])
	}
	return unsaid
}

// said notes that events have been about all rows.
func (v *view) said(unsaid []*cluster) {
	for _, seen := range unsaid {
		seen.said = seen.told()
	}
	v.unsaid = map[string]bool{}
}

// replicasOf is how many replicas the spec of a copy asks for. Where the hub leaves that to the member, the copy tells; as
// long as it cannot be seen, the last number of Pods stands in.
func replicasOf(seen *cluster, shown any) int32 {
	if replicas, ok := seen.Want.Spec["replicas"].(int64); ok {
		return int32(replicas)
	}
	for _, numbers := range []any{seen.numbers, seen.kept} {
		if seen, ok := numbers.(redisNumbers); ok {
			return fleet.Count(seen.asked)
		}
	}
	last, _ := shown.(redisNumbers)
	return cmp.Or(fleet.Count(last.replicas), 1)
}
