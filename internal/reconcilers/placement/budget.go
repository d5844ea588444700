// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
)

// maxRecordedRemovals is the number of removals that a MemberCluster lists.
const maxRecordedRemovals = 1000

// mayRemove reports whether the copy may be deleted: the removal is confirmed or within the budget. A held removal is
// not checked again, even if it has not been published yet. An allowed removal is recorded before mayRemove returns.
func (p *copyPass) mayRemove(ctx context.Context, found fleet.Object) (bool, error) {
	if p.Options.Removals == nil || fleet.RemovalConfirmed(p.hubObject) {
		return true, nil
	}
	if fleet.RemovalHeld(p.hubObject) || p.Table.Get(p.key, p.name).Reason == flotillav1.ReasonRemovalHeld {
		return false, nil
	}
	removal := fleet.Removal{Key: p.key, Cluster: p.name, UID: found.GetUID()}
	if p.Options.Removals.Allowed(removal) {
		return true, p.log.record(ctx, removal, p.recordRemovals)
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
	if !p.Options.Removals.Allow(removal, recorded, census) {
		return false, nil
	}
	if !p.Options.Removals.Binds(census.Fleet) {
		return true, nil
	}
	return true, p.log.record(ctx, removal, p.recordRemovals)
}

// census counts the copies of the fleet from the records of the hub objects, which do not depend on the visibility of
// members. The hub's cache answers only when it is synced.
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

// recordedRemovals returns the removals that the MemberClusters list.
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

// recordRemovals records removals from one member in its MemberCluster before they happen. A member without a
// MemberCluster is being offboarded.
func (r *Reconciler) recordRemovals(ctx context.Context, clusterName string, removals []fleet.Removal) error {
	// A stale cache leads to a conflict.
	reader := client.Reader(r.Hub)
	return clusters.RetryOnConflict(retry.DefaultRetry, func() error {
		memberCluster := &flotillav1.MemberCluster{}
		err := reader.Get(ctx, client.ObjectKey{Name: clusterName}, memberCluster)
		if err != nil {
			err = r.HubReader.Get(ctx, client.ObjectKey{Name: clusterName}, memberCluster)
		}
		reader = r.HubReader
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading MemberCluster %q: %w", clusterName, err)
		}
		before, now := memberCluster.DeepCopy(), r.Clock.Now()
		recorded := slices.DeleteFunc(memberCluster.Status.Removals, func(item flotillav1.Removal) bool { return now.Sub(item.Time.Time) >= fleet.RemovalWindow })
		anew := 0
		for _, removal := range removals {
			if slices.ContainsFunc(recorded, func(item flotillav1.Removal) bool { return item.UID == string(removal.UID) }) {
				continue
			}
			anew++
			recorded = append(recorded, flotillav1.Removal{
				Kind: removal.Key.Kind, Namespace: removal.Key.Object.Namespace, Name: removal.Key.Object.Name,
				UID: string(removal.UID), Time: metav1.NewTime(now),
			})
		}
		if anew == 0 {
			return nil
		}
		memberCluster.Status.Removals = recorded[max(0, len(recorded)-maxRecordedRemovals):]
		err = statuspatch.Write(ctx, r.Hub, before, memberCluster, statuspatch.SameVersion, FieldOwner)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("recording removals in MemberCluster %q: %w", clusterName, err)
		}
		return nil
	})
}

// removalLog combines the removals that concurrent passes record for one member, so that a hundred removals do not
// cause a hundred writes of the same object. The zero value is empty.
type removalLog struct {
	mu sync.Mutex
	// open are the batches that can still be joined. writing contains the members with a batch that is being written.
	open    map[string]*removalBatch
	writing map[string]chan struct{}
}

type removalBatch struct {
	removals []fleet.Removal
	done     chan struct{}
	// err is set before done is closed.
	err error
}

// record returns when write has recorded the removal, possibly together with those of other passes.
func (l *removalLog) record(ctx context.Context, removal fleet.Removal, write func(context.Context, string, []fleet.Removal) error) error {
	batch, first, before := l.join(removal)
	if !first {
		select {
		case <-batch.done:
			return batch.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if before != nil {
		<-before
	}
	l.mu.Lock()
	delete(l.open, removal.Cluster)
	l.writing[removal.Cluster] = batch.done
	l.mu.Unlock()
	batch.err = write(ctx, removal.Cluster, batch.removals)
	close(batch.done)
	return batch.err
}

// join adds the removal to the open batch of its member. The pass that opens a batch writes it, after the previous
// batch has been written.
func (l *removalLog) join(removal fleet.Removal) (batch *removalBatch, first bool, before chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open, l.writing = map[string]*removalBatch{}, map[string]chan struct{}{}
	}
	batch = l.open[removal.Cluster]
	if batch == nil {
		batch, first = &removalBatch{done: make(chan struct{})}, true
		l.open[removal.Cluster] = batch
	}
	batch.removals = append(batch.removals, removal)
	return batch, first, l.writing[removal.Cluster]
}
