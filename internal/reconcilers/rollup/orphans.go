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

// conflictDelay lets the hub's cache catch up with the write that came in between.
const conflictDelay = 200 * time.Millisecond

// observeOrphans keeps what placement has recorded as orphaned for as long as it holds: the copy is there, marked as one
// of this hub, and no hub object places it again.
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
			// Whether it is still there cannot be seen now.
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
		// While the annotation is there, placement is about to take the name out of the record.
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

// placedAnew queues the summaries of the members that come into the record of a hub object, or leave it.
type placedAnew struct{}

type requestQueue = workqueue.TypedRateLimitingInterface[clusters.Request]

// Create implements handler.TypedEventHandler. The summaries are made anyway when the manager starts.
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

// Delete implements handler.TypedEventHandler. An object that goes has no copy.
func (placedAnew) Delete(context.Context, event.TypedDeleteEvent[client.Object], requestQueue) {}

// Generic implements handler.TypedEventHandler.
func (placedAnew) Generic(context.Context, event.TypedGenericEvent[client.Object], requestQueue) {}
