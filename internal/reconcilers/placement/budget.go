// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// maxRecordedRemovals is how many removals a MemberCluster lists.
const maxRecordedRemovals = 1000

// mayRemove reports whether the copy may be deleted now: the removal is confirmed, or within the budget. What was held once
// is not asked about again, whether or not that has been published yet. A removal that is allowed has been recorded.
func (p *copyPass) mayRemove(ctx context.Context, found fleet.Object) (bool, error) {
	if p.Options.Removals == nil || fleet.RemovalConfirmed(p.hubObject) {
		return true, nil
	}
	if fleet.RemovalHeld(p.hubObject) || p.Table.Get(p.key, p.name).Reason == flotillav1.ReasonRemovalHeld {
		return false, nil
	}
	census, err := p.census(ctx)
	if err != nil {
		return false, err
	}
	recorded, err := p.recordedRemovals(ctx)
	if err != nil {
		return false, err
	}
	census.Object = len(p.hubObject.GetFleetStatus().PlacedIn)
	census.Deleting = p.hubObject.GetDeletionTimestamp() != nil
	removal := fleet.Removal{Key: p.key, Cluster: p.name, UID: found.GetUID()}
	if !p.Options.Removals.Allow(removal, recorded, census) {
		return false, nil
	}
	return true, p.recordRemoval(ctx, removal)
}

// census counts the copies of the fleet, from the hub objects: what their records say does not depend on which members can
// be seen now. The hub's cache answers only when it is complete.
func (r *Reconciler) census(ctx context.Context) (fleet.Census, error) {
	placed := map[fleet.ObjectKey][]string{}
	total := 0
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		list := kind.NewList()
		if err := r.Hub.List(ctx, list.(client.ObjectList), client.UnsafeDisableDeepCopy); err != nil {
			return fleet.Census{}, fmt.Errorf("counting the copies of %s: %w", kind.Name, err)
		}
		for _, object := range kind.Items(list) {
			names := object.GetFleetStatus().PlacedIn
			placed[fleet.ObjectKey{Kind: kind.Name, Object: client.ObjectKeyFromObject(object)}] = names
			total += len(names)
		}
	}
	return fleet.Census{Fleet: total, Records: func(key fleet.ObjectKey, clusterName string) bool {
		_, found := slices.BinarySearch(placed[key], clusterName)
		return found
	}}, nil
}

// recordedRemovals returns what the MemberClusters list.
func (r *Reconciler) recordedRemovals(ctx context.Context) ([]fleet.Removal, error) {
	published := &flotillav1.MemberClusterList{}
	if err := r.Hub.List(ctx, published, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MemberClusters: %w", err)
	}
	var all []fleet.Removal
	for i := range published.Items {
		for _, item := range published.Items[i].Status.Removals {
			all = append(all, fleet.Removal{
				Key:     fleet.ObjectKey{Kind: item.Kind, Object: types.NamespacedName{Namespace: item.Namespace, Name: item.Name}},
				Cluster: published.Items[i].Name, UID: types.UID(item.UID), At: item.Time.Time,
			})
		}
	}
	return all, nil
}

// recordRemoval lists a removal in the MemberCluster before it happens. A member without one is being offboarded.
func (r *Reconciler) recordRemoval(ctx context.Context, removal fleet.Removal) error {
	memberCluster := &flotillav1.MemberCluster{}
	if err := r.HubReader.Get(ctx, client.ObjectKey{Name: removal.Cluster}, memberCluster); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("reading MemberCluster %q: %w", removal.Cluster, err)
	}
	recorded := memberCluster.Status.Removals
	if slices.ContainsFunc(recorded, func(item flotillav1.Removal) bool { return item.UID == string(removal.UID) }) {
		return nil
	}
	before, now := memberCluster.DeepCopy(), r.Clock.Now()
	recorded = slices.DeleteFunc(recorded, func(item flotillav1.Removal) bool { return now.Sub(item.Time.Time) >= fleet.RemovalWindow })
	recorded = append(recorded, flotillav1.Removal{
		Kind: removal.Key.Kind, Namespace: removal.Key.Object.Namespace, Name: removal.Key.Object.Name,
		UID: string(removal.UID), Time: metav1.NewTime(now),
	})
	memberCluster.Status.Removals = recorded[max(0, len(recorded)-maxRecordedRemovals):]
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Status().Patch(ctx, memberCluster, patch, FieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording the removal of %s %q in MemberCluster %q: %w", removal.Key.Kind, removal.Key.Object, removal.Cluster, err)
	}
	return nil
}
