// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// Setup adds a placement controller for each kind to the manager.
func Setup(mgr mcmanager.Manager, members clusters.Directory, table *fleet.Table, opts Options, workers int) error {
	if opts.HubID == "" {
		return errors.New("setting up placement: the hub id is empty")
	}
	hub := mgr.GetLocalManager()
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		reconciler := &Reconciler{
			Kind:      kind,
			Hub:       hub.GetClient(),
			HubReader: hub.GetAPIReader(),
			Members:   members,
			Table:     table,
			Events:    clusters.LimitHubEvents(hub.GetEventRecorder("flotilla-placement"), clock.RealClock{}),
			Clock:     clock.RealClock{},
			Options:   opts,
		}
		if err := reconciler.setup(mgr, workers); err != nil {
			return fmt.Errorf("setting up placement of %s: %w", kind.Name, err)
		}
	}
	return nil
}

func (r *Reconciler) setup(mgr mcmanager.Manager, workers int) error {
	controller, err := clusters.NewController("placement-"+strings.ToLower(r.Kind.Name), mgr, r.Members, workers, r)
	if err != nil {
		return err
	}
	hubCache := mgr.GetLocalManager().GetCache()
	for _, hubSource := range []source.TypedSource[clusters.Request]{
		source.TypedKind[client.Object, clusters.Request](hubCache, r.Kind.New(),
			handler.TypedEnqueueRequestsFromMapFunc(requestsOf), predicate.TypedFuncs[client.Object]{UpdateFunc: r.hubObjectChanged}),
		clusters.OnOffboarded(hubCache, r.requestsFor),
		clusters.OnChange(r.Members, r.requestsFor),
		source.TypedFunc[clusters.Request](r.watchTable),
	} {
		if err := controller.Watch(hubSource); err != nil {
			return fmt.Errorf("watching the hub: %w", err)
		}
	}
	if err := controller.MultiClusterWatch(clusters.Watch[client.Object](r.Kind.New(), r.requestsOfCopy, r.copyChanged)); err != nil {
		return fmt.Errorf("watching members: %w", err)
	}
	return nil
}

// requestsOf returns the hub pass and every copy pass of a hub object.
func requestsOf(_ context.Context, o client.Object) []clusters.Request {
	hubObject, ok := o.(fleet.Object)
	if !ok {
		return nil
	}
	requests := []clusters.Request{requestFor("", hubObject)}
	for _, name := range hubObject.GetFleetStatus().PlacedIn {
		requests = append(requests, requestFor(name, hubObject))
	}
	return requests
}

func requestFor(clusterName string, o client.Object) clusters.Request {
	return clusters.Request{
		ClusterName: multicluster.ClusterName(clusterName),
		Request:     ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)},
	}
}

// hubObjectChanged keeps changes that a pass acts on. What roll-up writes is not among them.
func (r *Reconciler) hubObjectChanged(e event.TypedUpdateEvent[client.Object]) bool {
	before, ok := e.ObjectOld.(fleet.Object)
	after, okAfter := e.ObjectNew.(fleet.Object)
	if !ok || !okAfter {
		return false
	}
	metadataOf := func(o fleet.Object) []map[string]string {
		watched := map[string]string{}
		for _, key := range askingAnnotations {
			if value, found := o.GetAnnotations()[key]; found {
				watched[key] = value
			}
		}
		return []map[string]string{watched, copied(o.GetAnnotations(), r.Options.CopyMetadata), copied(o.GetLabels(), r.Options.CopyMetadata)}
	}
	return before.GetGeneration() != after.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
		!slices.Equal(before.GetFinalizers(), after.GetFinalizers()) ||
		!slices.Equal(before.GetFleetStatus().PlacedIn, after.GetFleetStatus().PlacedIn) ||
		!slices.Equal(before.GetFleetStatus().Departing, after.GetFleetStatus().Departing) ||
		!sameRecreations(before.GetFleetStatus().Recreated, after.GetFleetStatus().Recreated) ||
		!slices.EqualFunc(metadataOf(before), metadataOf(after), maps.Equal)
}

// requestsFor returns the passes that a change of a member leads to. There is a hub pass only where it may change the
// record, or whose turn it is.
func (r *Reconciler) requestsFor(ctx context.Context, clusterName multicluster.ClusterName) []clusters.Request {
	member, registered, err := r.roster().Find(ctx, string(clusterName))
	if err != nil {
		logf.FromContext(ctx).Error(err, "Finding out about a cluster that has changed", "cluster", string(clusterName))
	}
	var requests []clusters.Request
	for _, about := range r.index.about(string(clusterName), member, registered) {
		request := clusters.Request{Request: ctrl.Request{NamespacedName: about.key}}
		if about.open || r.Table.Held(fleet.ObjectKey{Kind: r.Kind.Name, Object: about.key}) {
			requests = append(requests, request)
		}
		if about.placed {
			request.ClusterName = clusterName
			requests = append(requests, request)
		}
	}
	return requests
}

// watchTable queues a hub pass when a copy pass has an outcome that it decides by: a copy that is gone may leave the
// record, and what waits for its turn, or no longer does, may give somebody leave. Who gets leave has its copy pass queued.
func (r *Reconciler) watchTable(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	r.Table.Subscribe(func(key fleet.ObjectKey, _ string, outcome fleet.Outcome) {
		decides := outcome.Gone || outcome.Held || !outcome.LostAt.IsZero() || r.Table.Held(key)
		if key.Kind == r.Kind.Name && decides && ctx.Err() == nil {
			queue.Add(clusters.Request{Request: ctrl.Request{NamespacedName: key.Object}})
		}
	})
	r.Table.SubscribeLeaves(func(key fleet.ObjectKey, clusterName string) {
		if key.Kind == r.Kind.Name && ctx.Err() == nil {
			queue.Add(clusters.Request{ClusterName: multicluster.ClusterName(clusterName), Request: ctrl.Request{NamespacedName: key.Object}})
		}
	})
	return nil
}

// requestsOfCopy maps a member's object to its copy pass: our copies, and objects that are in the way of one. While
// others wait for the copy, the hub pass looks at it too.
func (r *Reconciler) requestsOfCopy(_ context.Context, clusterName multicluster.ClusterName, _ cluster.Cluster, o client.Object) []clusters.Request {
	key := fleet.ObjectKey{Kind: r.Kind.Name, Object: client.ObjectKeyFromObject(o)}
	inTheWay := r.Table.Get(key, string(clusterName)).Reason == flotillav1.ReasonNameConflict
	if !inTheWay && !fleet.IsOurs(o, r.Options.HubID) {
		return nil
	}
	requests := []clusters.Request{requestFor(string(clusterName), o)}
	if r.Table.Held(key) {
		requests = append(requests, requestFor("", o))
	}
	return requests
}

// copyChanged keeps changes of what placement writes or decides by. A copy's status is roll-up's business, except while
// others wait for the copy.
func (r *Reconciler) copyChanged(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) ||
		r.Table.Held(fleet.ObjectKey{Kind: r.Kind.Name, Object: client.ObjectKeyFromObject(after)}) && r.settled(before) != r.settled(after)
}

func (r *Reconciler) settled(o client.Object) bool {
	object, ok := o.(fleet.Object)
	return ok && fleet.CopyOf(r.Kind, object).Settled()
}
