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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/controller"
	"github.com/flotilla-dev/flotilla/internal/clusters/events"
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
			Events:    events.LimitHub(hub.GetEventRecorder("flotilla-placement"), clock.RealClock{}),
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
	c, err := controller.New("placement-"+strings.ToLower(r.Kind.Name), mgr, r.Members, workers, r)
	if err != nil {
		return err
	}
	hubCache := mgr.GetLocalManager().GetCache()
	for _, hubSource := range []source.TypedSource[clusters.Request]{
		source.TypedKind[client.Object, clusters.Request](hubCache, r.Kind.New(),
			handler.TypedEnqueueRequestsFromMapFunc(requestsOf), predicate.TypedFuncs[client.Object]{UpdateFunc: r.hubObjectChanged}),
		source.TypedKind[client.Object, clusters.Request](hubCache, r.Kind.New(),
			handler.TypedEnqueueRequestsFromMapFunc(requestsOfTrials), onUpdate(r.onlyRolloutChanged)),
		controller.OnOffboarded(hubCache, r.requestsFor),
		controller.OnChange(r.Members, r.requestsFor),
		source.TypedFunc[clusters.Request](r.watchTable),
	} {
		if err := c.Watch(hubSource); err != nil {
			return fmt.Errorf("watching the hub: %w", err)
		}
	}
	if err := c.MultiClusterWatch(controller.Watch[client.Object](r.Kind.New(), r.requestsOfCopy, r.copyChanged)); err != nil {
		return fmt.Errorf("watching members: %w", err)
	}
	return nil
}

// requestsOf returns the requests for the hub pass and every copy pass of a hub object.
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

// requestsOfTrials returns the request for the hub pass of a hub object, which decides about the clusters on trial.
func requestsOfTrials(_ context.Context, o client.Object) []clusters.Request {
	return []clusters.Request{requestFor("", o)}
}

// onUpdate passes updates only.
func onUpdate(passes func(event.TypedUpdateEvent[client.Object]) bool) predicate.TypedPredicate[client.Object] {
	return predicate.TypedFuncs[client.Object]{
		CreateFunc:  func(event.TypedCreateEvent[client.Object]) bool { return false },
		DeleteFunc:  func(event.TypedDeleteEvent[client.Object]) bool { return false },
		GenericFunc: func(event.TypedGenericEvent[client.Object]) bool { return false },
		UpdateFunc:  passes,
	}
}

// onlyRolloutChanged passes changes of the clusters on trial, and the end of a rollout that a person promoted. Copy passes do
// not depend on them.
func (r *Reconciler) onlyRolloutChanged(e event.TypedUpdateEvent[client.Object]) bool {
	before, ok := e.ObjectOld.(fleet.Object)
	after, okAfter := e.ObjectNew.(fleet.Object)
	return ok && okAfter && !r.hubObjectChanged(e) &&
		(!fleet.SameTrials(before.GetFleetStatus().Trials, after.GetFleetStatus().Trials) || fleet.PromotionOf(before) != fleet.PromotionOf(after))
}

func requestFor(clusterName string, o client.Object) clusters.Request {
	return clusters.Request{
		ClusterName: multicluster.ClusterName(clusterName),
		Request:     ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)},
	}
}

// hubObjectChanged passes the changes that a pass depends on. Changes by roll-up are not among them.
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
		!fleet.SameChange(fleet.RevertedChange(before), fleet.RevertedChange(after)) ||
		!slices.EqualFunc(metadataOf(before), metadataOf(after), maps.Equal)
}

// requestsFor returns the requests that result from a change of a member. They include a hub pass only if the change
// may affect the record or the waves.
func (r *Reconciler) requestsFor(ctx context.Context, clusterName multicluster.ClusterName) []clusters.Request {
	member, registered, err := r.roster().Find(ctx, string(clusterName))
	if err != nil {
		logf.FromContext(ctx).Error(err, "Finding out about a cluster that has changed", "cluster", string(clusterName))
	}
	var requests []clusters.Request
	for _, about := range r.index.about(string(clusterName), member, registered) {
		request := clusters.Request{Request: ctrl.Request{NamespacedName: about.key}}
		if about.open || r.leading(about.key) {
			requests = append(requests, request)
		}
		if about.placed {
			request.ClusterName = clusterName
			requests = append(requests, request)
		}
	}
	return requests
}

// watchTable queues a hub pass for outcomes that it depends on: a copy that is gone may be removed from the record, and
// a copy that starts or stops waiting for its turn may lead to a permit, as does a slot in a cluster. A permit queues the
// copy pass of its cluster.
func (r *Reconciler) watchTable(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	r.Table.Subscribe(func(key fleet.ObjectKey, _ string, outcome fleet.Outcome) {
		decides := outcome.Gone || outcome.Held || !outcome.LostAt.IsZero() || r.leading(key.Object)
		if key.Kind == r.Kind.Name && decides && ctx.Err() == nil {
			queue.Add(clusters.Request{Request: ctrl.Request{NamespacedName: key.Object}})
		}
	})
	r.Table.Slots.Subscribe(func(key fleet.ObjectKey) {
		if key.Kind == r.Kind.Name && ctx.Err() == nil {
			queue.Add(clusters.Request{Request: ctrl.Request{NamespacedName: key.Object}})
		}
	})
	r.Table.SubscribePermits(func(key fleet.ObjectKey, clusterName string) {
		if key.Kind == r.Kind.Name && ctx.Err() == nil {
			queue.Add(clusters.Request{ClusterName: multicluster.ClusterName(clusterName), Request: ctrl.Request{NamespacedName: key.Object}})
		}
	})
	return nil
}

// requestsOfCopy maps an object of a member to its copy pass: copies, and objects with the name of a copy, which may be in
// its way. A pass that runs now may be about to find that. While other clusters wait for the copy, it also queues the hub
// pass.
func (r *Reconciler) requestsOfCopy(_ context.Context, clusterName multicluster.ClusterName, _ cluster.Cluster, o client.Object) []clusters.Request {
	key := fleet.ObjectKey{Kind: r.Kind.Name, Object: client.ObjectKeyFromObject(o)}
	if !fleet.IsOurs(o, r.Options.HubID) && r.Table.Get(key, string(clusterName)) == (fleet.Outcome{}) {
		return nil
	}
	requests := []clusters.Request{requestFor(string(clusterName), o)}
	if r.leading(key.Object) {
		requests = append(requests, requestFor("", o))
	}
	return requests
}

// copyChanged passes changes of fields that placement writes or depends on. The status of a copy only matters to
// placement while other clusters wait for the copy.
func (r *Reconciler) copyChanged(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) ||
		r.leading(client.ObjectKeyFromObject(after)) && r.stateOf(before) != r.stateOf(after)
}

// leading reports whether hub passes decide about a rollout: copies wait for their turn, or clusters are on trial.
func (r *Reconciler) leading(key types.NamespacedName) bool {
	return r.Table.Held(fleet.ObjectKey{Kind: r.Kind.Name, Object: key}) || r.index.tried(key)
}

// stateOf returns what a rollout depends on in the status of a copy.
func (r *Reconciler) stateOf(o client.Object) (state [4]bool) {
	if object, ok := o.(fleet.Object); ok {
		seen := fleet.CopyOf(r.Kind, object)
		ready := seen.Ready != nil && seen.Ready.Status == metav1.ConditionTrue
		state = [4]bool{seen.Settled(), seen.Worse, ready, seen.HeldBack}
	}
	return state
}
