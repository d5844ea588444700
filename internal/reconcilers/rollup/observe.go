// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/roster"
)

// state is everything that a pass has read about the clusters of a hub object.
type state struct {
	// view contains all clusters, and stale those whose rows have to be computed again, sorted by name.
	view  *view
	stale []*cluster
	// invalid is the error of an invalid placement, and invalidOverride that of an invalid override.
	invalid, invalidOverride error
	// omitted is the number of clusters that the published list omits.
	omitted int32
	// slots limits how many objects change in a cluster.
	slots *fleet.Slots
}

// cluster is the state of one cluster of a hub object.
type cluster struct {
	fleet.Observation
	// chosen reports whether the cluster should have a copy, and placed whether it may have one.
	chosen, placed bool
	// numbers are the counts in the copy's status, as defined by the kind; nil without a copy.
	numbers any
	// row is the result of the last pass, and kept are the numbers from when the copy was last visible. They replace the
	// published entry of a cluster that the list omits.
	row *row
	// counted reports whether the row is in the ledger of the view.
	counted bool
	kept    any
	// said is the entry as of the last events.
	said *flotillav1.ClusterStatus
	// done and undecided describe the turn of the cluster, unless it is open.
	done, undecided bool
}

// lastEntry returns the entry of the last pass, or nil before the first one.
func (c *cluster) lastEntry() *flotillav1.ClusterStatus {
	if c.row == nil {
		return nil
	}
	return &c.row.entry.ClusterStatus
}

// tooEarly reports whether a pass would have to change the published state of an undecided cluster that the list omits,
// so that there is no entry to repeat. Deciding takes seconds.
func (s state) tooEarly() bool {
	return s.omitted > 0 && slices.ContainsFunc(s.stale, func(c *cluster) bool { return c.Undecided() && c.Previous == nil })
}

func (c *cluster) labels() map[string]string {
	if c.Member == nil {
		return nil
	}
	return c.Member.Labels
}

// observe reads the changes in the clusters of a hub object since the last pass from the members' caches.
func (r *Reconciler) observe(ctx context.Context, hubObject fleet.Object) (state, error) {
	key := client.ObjectKeyFromObject(hubObject)
	seen, changed := r.views.take(key)
	if seen.basis != basisOf(hubObject) || seen.clusters == nil {
		seen.begin(r.Kind, hubObject)
		members, err := r.roster().All(ctx)
		if err != nil {
			r.views.forget(key)
			return state{}, err
		}
		changed = union(seen.choice.Choose(members, hubObject.GetFleetStatus().PlacedIn), seen.placedIn)
	} else {
		changed = union(changed, difference(seen.placedIn, hubObject.GetFleetStatus().PlacedIn))
		changed = union(changed, redeparted(seen.departing, hubObject.GetFleetStatus().Departing))
	}
	if recorded := hubObject.GetFleetStatus().Trials; !fleet.SameTrials(seen.recorded, recorded) {
		trials := fleet.TrialsOf(hubObject)
		changed = union(changed, retried(seen.trials, trials))
		seen.trials, seen.recorded = trials, recorded
	}
	// The hub's cache replaces objects and never modifies them.
	seen.placedIn, seen.departing = hubObject.GetFleetStatus().PlacedIn, hubObject.GetFleetStatus().Departing
	var again []string
	for _, name := range changed {
		read, err := r.look(ctx, seen, hubObject, name)
		if err != nil {
			r.views.forget(key)
			return state{}, err
		}
		if !read {
			again = append(again, name)
		}
	}
	seen.past = nil
	r.views.keep(key, seen, again)

	return state{
		view: seen, stale: seen.outdated(r.Kind, hubObject), invalid: seen.invalid, invalidOverride: seen.invalidOverride(),
		omitted: hubObject.GetFleetStatus().ClustersOmitted, slots: r.Table.Slots,
	}, nil
}

func (r *Reconciler) roster() roster.Roster {
	return roster.Roster{Kind: r.Kind.Name, Hub: r.Hub, Members: r.Members}
}

// look updates one cluster of a view, and reports whether it could be read.
func (r *Reconciler) look(ctx context.Context, seen *view, hubObject fleet.Object, name string) (bool, error) {
	member, registered, err := r.roster().Find(ctx, name)
	if err != nil {
		return false, err
	}
	found := &cluster{placed: contains(seen.placedIn, name)}
	switch {
	case hubObject.GetDeletionTimestamp() != nil || seen.invalid != nil:
	case registered:
		found.chosen = seen.choice.Takes(member, found.placed)
	default:
		found.chosen = seen.choice.Names(name)
	}
	if !found.chosen && !found.placed {
		seen.drop(name)
		return true, nil
	}
	key := fleet.ObjectKey{Kind: r.Kind.Name, Object: client.ObjectKeyFromObject(hubObject)}
	found.Observation = fleet.Observation{Name: name, Outcome: r.Table.Get(key, name), WantError: seen.specsError, Trial: seen.trials[name]}
	read := true
	var copied fleet.Object
	if registered {
		found.Member = &member
		if member.Visible {
			copied, read = r.read(ctx, key, found)
		}
	}
	if seen.specs != nil {
		found.Want, found.WantError = seen.specs.For(name, found.labels())
	}
	if change := fleet.RevertedChange(hubObject); change != nil && found.WantError == nil {
		back := fleet.TakeBack(change, found.Want, found.Copy)
		found.Want, found.Kept = back.Want, back.Kept
	}
	found.Fate = fateOf(found, hubObject, copied, seen.invalid != nil)
	if before := cmp.Or(seen.clusters[name], seen.past[name]); before != nil {
		found.row, found.said = before.row, before.said
		found.counted = before.counted && seen.clusters[name] != nil
		if !found.Visible() {
			found.kept = cmp.Or(before.numbers, before.kept)
		}
	}
	seen.put(found)
	return read, nil
}

// read reads the member's copy from its cache, stores it in the observation and returns it. If the cache cannot be
// read, the member counts as not visible for this object, and it is read again.
func (r *Reconciler) read(ctx context.Context, key fleet.ObjectKey, seen *cluster) (copied fleet.Object, read bool) {
	member, err := r.Members.Member(clusterName(seen.Name))
	if err == nil {
		found := r.Kind.New()
		// The object is not modified, and everything that is kept of it is copied.
		err = member.GetClient().Get(ctx, key.Object, found, client.UnsafeDisableDeepCopy)
		if err == nil && fleet.IsOurs(found, r.HubID) {
			seen.Copy = fleet.CopyOf(r.Kind.Kind, found)
			seen.numbers = r.Kind.numbers(found)
			copied = found
		}
	}
	if client.IgnoreNotFound(err) != nil {
		seen.Member.Visible = false
		seen.Member.Reason, seen.Member.Message = flotillav1.ReasonClusterNotReady, roster.NotConnected
		return nil, false
	}
	return copied, true
}

// fateOf returns the fate by which placement acts as well.
func fateOf(c *cluster, hubObject, copied fleet.Object, invalid bool) fleet.Fate {
	switch {
	case invalid:
		return fleet.FateLeave
	case !c.chosen && c.Visible() && copied == nil:
		// No copy is left; placement updates the record.
		return fleet.FateRemove
	}
	var annotations map[string]string
	if copied != nil {
		annotations = copied.GetAnnotations()
	}
	return fleet.FateOf(hubObject, c.Name, c.Member, c.chosen, annotations)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// difference returns the elements that are in only one of two sorted lists.
func difference(a, b []string) []string {
	if slices.Equal(a, b) {
		return nil
	}
	only := func(a, b []string) []string {
		return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return contains(b, name) })
	}
	return slices.Concat(only(a, b), only(b, a))
}

// redeparted returns the clusters for which two records differ.
func redeparted(a, b []flotillav1.Departure) []string {
	if slices.Equal(a, b) {
		return nil
	}
	count := map[flotillav1.Departure]int{}
	for _, departure := range slices.Concat(a, b) {
		count[departure]++
	}
	var names []string
	for departure, n := range count {
		if n == 1 {
			names = append(names, departure.Name)
		}
	}
	return names
}

// retried returns the clusters for which two records of trials differ.
func retried(a, b fleet.Trials) []string {
	var names []string
	for name, trial := range a {
		if b[name] != trial {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, known := a[name]; !known {
			names = append(names, name)
		}
	}
	return names
}

func contains(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

func clusterName(name string) multicluster.ClusterName { return multicluster.ClusterName(name) }
