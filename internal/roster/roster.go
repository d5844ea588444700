// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roster converts members to the form of package fleet, so that placement and roll-up see the same members: the
// snapshots of the pool and, until the pool has read a registration, its published MemberCluster.
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

// The messages about members that are not visible do not change with each attempt to connect, so that an outage leads to
// one write. The MemberCluster has the details.
const (
	unreachable = "The cluster cannot be reached; numbers are the last known ones"
	notServing  = "The kind is not enabled for the cluster"
	switchedOff = "The kind is off in the cluster, see its MemberCluster; numbers are the last known ones"
	// NotConnected is the message for a member without caches.
	NotConnected = "The cluster is not ready, see its MemberCluster"
)

// Roster provides the members as seen by one kind.
type Roster struct {
	// Kind is the name of the kind.
	Kind string
	// Hub reads MemberClusters, from the hub's cache.
	Hub     client.Reader
	Members clusters.Directory
}

// Find returns one member, or false if the name is not registered. It reads no other member.
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

// All returns all registered members, sorted by name.
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

// Member converts a snapshot of a member for the kind.
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
