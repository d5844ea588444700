// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// The messages about members that cannot be seen are the same at every attempt to reach one, so that an outage is
// written once. The MemberCluster has the details.
const (
	unreachable  = "The cluster cannot be reached; numbers are the last known ones"
	notConnected = "The cluster is not ready; its MemberCluster says why"
	notServing   = "The cluster does not take part in this kind"
	switchedOff  = "The kind is off in the cluster; its MemberCluster says why; numbers are the last known ones"
)

// state is everything that a pass has read about a hub object's clusters.
type state struct {
	// clusters are those chosen and those that may have a copy, sorted by name.
	clusters []cluster
	// invalid is why the placement cannot be understood.
	invalid error
	// template names the change that the copies should carry, and chosen is for how many clusters it is.
	template string
	chosen   int
	// omitted is how many clusters the published list leaves out.
	omitted int32
}

// cluster is what a pass has read about one of them.
type cluster struct {
	fleet.Observation
	// placed says that the cluster may have a copy.
	placed bool
	// object is the copy; nil when there is none of ours or the member cannot be seen.
	object fleet.Object
}

// tooEarly reports whether a pass would have to change what is published about a cluster that this process has not
// decided on: one that the published list leaves out, so that there is nothing to repeat. Deciding takes seconds.
func (s state) tooEarly() bool {
	return s.omitted > 0 && slices.ContainsFunc(s.clusters, func(c cluster) bool { return c.Undecided() && c.Previous == nil })
}

func (c cluster) labels() map[string]string {
	if c.Member == nil {
		return nil
	}
	return c.Member.Labels
}

// fate is the same that placement acts by.
func (c cluster) fate(hubObject fleet.Object, chosen, invalid bool) fleet.Fate {
	switch {
	case invalid:
		return fleet.FateLeave
	case !chosen && c.Visible() && c.object == nil:
		// Nothing of ours is left; the record follows.
		return fleet.FateRemove
	}
	var annotations map[string]string
	if c.object != nil {
		annotations = c.object.GetAnnotations()
	}
	return fleet.FateOf(hubObject, c.Name, c.Member, chosen, annotations)
}

// members returns what is known about every registered member, those included whose registration has not been read
// since this process started.
func (r *Reconciler) members(ctx context.Context) ([]fleet.Member, error) {
	published := &flotillav1.MemberClusterList{}
	if err := r.Hub.List(ctx, published); err != nil {
		return nil, fmt.Errorf("listing MemberClusters: %w", err)
	}
	snapshots := r.Members.Snapshots()
	known := make([]fleet.Member, 0, len(snapshots))
	for _, snapshot := range snapshots {
		known = append(known, r.member(snapshot))
	}
	return fleet.Members(known, published.Items), nil
}

func (r *Reconciler) member(snapshot clusters.Snapshot) fleet.Member {
	member := fleet.Member{
		Name:       string(snapshot.Name),
		Labels:     snapshot.Labels,
		Accepted:   snapshot.Accepted,
		Serves:     snapshot.TakesPart(r.Kind.Name),
		Draining:   snapshot.Draining,
		Decided:    snapshot.Decided,
		Namespaces: snapshot.Namespaces,
		Visible:    snapshot.Visible() && snapshot.Serves(r.Kind.Name),
		Writable:   snapshot.Writable() && snapshot.Serves(r.Kind.Name),
		Reason:     flotillav1.ReasonClusterNotReady,
		Message:    notConnected,
	}
	switch {
	case !member.Serves:
		member.Message = notServing
	case snapshot.State == clusters.StateUnreachable:
		member.Reason, member.Message = flotillav1.ReasonClusterUnreachable, unreachable
	case snapshot.Visible() && !snapshot.Serves(r.Kind.Name):
		member.Message = switchedOff
	}
	return member
}

func entriesByName(kind Kind, hubObject fleet.Object) map[string]*flotillav1.ClusterStatus {
	byName := map[string]*flotillav1.ClusterStatus{}
	for _, entry := range kind.entries(hubObject) {
		byName[entry.Name] = &entry
	}
	return byName
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func contains(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

func clusterName(name string) multicluster.ClusterName { return multicluster.ClusterName(name) }
