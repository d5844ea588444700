// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// conflictDelay gives the hub's cache time to receive the conflicting write.
const conflictDelay = 200 * time.Millisecond

// observeOrphans returns the recorded orphans that still apply: the copy exists, it is marked as a copy of this hub,
// and no hub object places it again.
func (s *Summary) observeOrphans(ctx context.Context, counted *count, snapshot clusters.Snapshot, recorded []flotillav1.Attention) error {
	member, err := s.Members.Member(snapshot.Name)
	if err != nil {
		return err
	}
	for _, item := range recorded {
		kind, known := kindOf(item.Kind)
		if !fleet.IsOrphan(item) || !known {
			continue
		}
		if snapshot.Off[kind.Name] != "" {
			// The member is not visible, so it is unknown whether the copy still exists.
			counted.orphaned = append(counted.orphaned, item)
			continue
		}
		key := fleet.AttentionKey(item).Object
		found := kind.New()
		if err := member.GetClient().Get(ctx, key, found); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return err
		}
		hubObject := kind.New()
		if err := s.Hub.Get(ctx, key, hubObject); client.IgnoreNotFound(err) != nil {
			return err
		}
		// While the annotation is there, placement is about to remove the name from the record.
		released := slices.Contains(fleet.Names(hubObject.GetAnnotations()[flotillav1.AnnotationRelease]), string(snapshot.Name))
		placed := slices.Contains(hubObject.GetFleetStatus().PlacedIn, string(snapshot.Name))
		if fleet.IsOurs(found, s.HubID) && (released || !placed) {
			counted.orphaned = append(counted.orphaned, item)
		}
	}
	return nil
}

func kindOf(name string) (fleet.Kind, bool) {
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		if kind.Name == name {
			return kind, true
		}
	}
	return fleet.Kind{}, false
}

// placedAnew queues the summaries of members that are added to or removed from the record of a hub object.
type placedAnew struct{}

type requestQueue = workqueue.TypedRateLimitingInterface[clusters.Request]

// Create implements handler.TypedEventHandler. All summaries are computed anyway when the manager starts.
func (placedAnew) Create(context.Context, event.TypedCreateEvent[client.Object], requestQueue) {}

// Update implements handler.TypedEventHandler.
func (placedAnew) Update(_ context.Context, e event.TypedUpdateEvent[client.Object], queue requestQueue) {
	before, ok := e.ObjectOld.(fleet.Object)
	after, okAfter := e.ObjectNew.(fleet.Object)
	if !ok || !okAfter {
		return
	}
	for _, name := range difference(before.GetFleetStatus().PlacedIn, after.GetFleetStatus().PlacedIn) {
		for _, request := range toSummary(multicluster.ClusterName(name)) {
			queue.Add(request)
		}
	}
}

// Delete implements handler.TypedEventHandler. A deleted object has no copies any more.
func (placedAnew) Delete(context.Context, event.TypedDeleteEvent[client.Object], requestQueue) {}

// Generic implements handler.TypedEventHandler.
func (placedAnew) Generic(context.Context, event.TypedGenericEvent[client.Object], requestQueue) {}
