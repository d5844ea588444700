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

// state is everything that a pass has read about a hub object's clusters.
type state struct {
	// view has all of them, and stale are those of which the rows are made anew, sorted by name.
	view  *view
	stale []*cluster
	// invalid is why the placement cannot be understood, and invalidOverride is what is wrong with an override.
	invalid, invalidOverride error
	// omitted is how many clusters the published list leaves out.
	omitted int32
}

// cluster is what is known about one of them.
type cluster struct {
	fleet.Observation
	// chosen says that the cluster should have a copy, and placed that it may have one.
	chosen, placed bool
	// numbers are what the copy's status counts, as the kind has them; nil without a copy.
	numbers any
	// row is what the last pass has made of the cluster, and kept are the numbers from when the copy was seen last. They stand
	// in for the published entry of a cluster that the list leaves out.
	row *row
	// counted says that the row is in the ledger of the view.
	counted bool
	kept    any
	// said is the entry that the last events were about.
	said *flotillav1.ClusterStatus
	// done and undecided are about the turn of the cluster, unless that is open.
	done, undecided bool
}

// told is the entry that the last pass has made; nil before the first one.
func (c *cluster) told() *flotillav1.ClusterStatus {
	if c.row == nil {
		return nil
	}
	return &c.row.entry.ClusterStatus
}

// tooEarly reports whether a pass would have to change what is published about a cluster that this process has not
// decided on: one that the published list leaves out, so that there is nothing to repeat. Deciding takes seconds.
func (s state) tooEarly() bool {
	return s.omitted > 0 && slices.ContainsFunc(s.stale, func(c *cluster) bool { return c.Undecided() && c.Previous == nil })
}

func (c *cluster) labels() map[string]string {
	if c.Member == nil {
		return nil
	}
	return c.Member.Labels
}

// observe reads what has changed of a hub object's clusters since the pass before, from the members' caches.
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
	// What the hub's cache shows is replaced and never changed.
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
		omitted: hubObject.GetFleetStatus().ClustersOmitted,
	}, nil
}

func (r *Reconciler) roster() roster.Roster {
	return roster.Roster{Kind: r.Kind.Name, Hub: r.Hub, Members: r.Members}
}

// look brings what a view has of one cluster up to date, and reports whether it could be read.
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
	found.Observation = fleet.Observation{Name: name, Outcome: r.Table.Get(key, name), WantError: seen.specsError}
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

// read fills in the member's copy, from its cache, and returns it. When the cache cannot tell, the member is not visible
// for this object, which is looked at again.
func (r *Reconciler) read(ctx context.Context, key fleet.ObjectKey, seen *cluster) (copied fleet.Object, read bool) {
	member, err := r.Members.Member(clusterName(seen.Name))
	if err == nil {
		found := r.Kind.New()
		// Nothing in it is changed, and what is kept of it is copied.
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

// fateOf is the same that placement acts by.
func fateOf(c *cluster, hubObject, copied fleet.Object, invalid bool) fleet.Fate {
	switch {
	case invalid:
		return fleet.FateLeave
	case !c.chosen && c.Visible() && copied == nil:
		// Nothing of ours is left; the record follows.
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

// difference returns what is in one of two sorted lists only.
func difference(a, b []string) []string {
	if slices.Equal(a, b) {
		return nil
	}
	only := func(a, b []string) []string {
		return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return contains(b, name) })
	}
	return slices.Concat(only(a, b), only(b, a))
}

// redeparted returns the clusters of which two records say different things.
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

func contains(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

func clusterName(name string) multicluster.ClusterName { return multicluster.ClusterName(name) }
