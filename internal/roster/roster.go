// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roster tells placement and roll-up about members in the words of package fleet, so that both see the same: what
// the pool knows, and until it has read a registration, what has been published of it.
package roster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// The messages about members that cannot be seen are the same at every attempt to reach one, so that an outage is
// written once. The MemberCluster has the details.
const (
	unreachable = "The cluster cannot be reached; numbers are the last known ones"
	notServing  = "The cluster does not take part in this kind"
	switchedOff = "The kind is off in the cluster; its MemberCluster says why; numbers are the last known ones"
	// NotConnected is about a member without caches.
	NotConnected = "The cluster is not ready; its MemberCluster says why"
)

// Roster is the members from the point of view of a kind.
type Roster struct {
	// Kind is its name.
	Kind string
	// Hub reads MemberClusters, from the hub's cache.
	Hub     client.Reader
	Members clusters.Directory
}

// Find returns what is known about one member; false when the name is not registered. It does not look at any other.
func (r Roster) Find(ctx context.Context, name string) (fleet.Member, bool, error) {
	if snapshot, registered := r.Members.Snapshot(multicluster.ClusterName(name)); registered {
		return r.Member(snapshot), true, nil
	}
	published := &flotillav1.MemberCluster{}
	if err := r.Hub.Get(ctx, client.ObjectKey{Name: name}, published, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return fleet.Member{}, false, nil
		}
		return fleet.Member{}, false, fmt.Errorf("reading MemberCluster %q: %w", name, err)
	}
	return fleet.Published(published), true, nil
}

// All returns what is known about every registered member, sorted by name.
func (r Roster) All(ctx context.Context) ([]fleet.Member, error) {
	published := &flotillav1.MemberClusterList{}
	if err := r.Hub.List(ctx, published, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MemberClusters: %w", err)
	}
	snapshots := r.Members.Snapshots()
	known := make([]fleet.Member, 0, len(snapshots))
	for _, snapshot := range snapshots {
		known = append(known, r.Member(snapshot))
	}
	return fleet.Members(known, published.Items), nil
}

// Member says what a snapshot means for the kind.
func (r Roster) Member(snapshot clusters.Snapshot) fleet.Member {
	member := fleet.Member{
		Name:       string(snapshot.Name),
		Labels:     snapshot.Labels,
		Accepted:   snapshot.Accepted,
		Serves:     snapshot.TakesPart(r.Kind),
		Draining:   snapshot.Draining,
		Decided:    snapshot.Decided,
		Namespaces: snapshot.Namespaces,
		Visible:    snapshot.Visible() && snapshot.Serves(r.Kind),
		Writable:   snapshot.Writable() && snapshot.Serves(r.Kind),
		Reason:     flotillav1.ReasonClusterNotReady,
		Message:    NotConnected,
	}
	switch {
	case !member.Serves:
		member.Message = notServing
	case snapshot.State == clusters.StateUnreachable:
		member.Reason, member.Message = flotillav1.ReasonClusterUnreachable, unreachable
	case snapshot.Visible() && !snapshot.Serves(r.Kind):
		member.Message = switchedOff
	}
	return member
}
