// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/controller"
	"github.com/flotilla-dev/flotilla/internal/clusters/events"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// Setup adds a roll-up controller for each kind, and the controller of the summaries, to the manager.
func Setup(mgr mcmanager.Manager, members clusters.Directory, table *fleet.Table, hubID string, clk clock.PassiveClock, workers int) error {
	if hubID == "" {
		return errors.New("setting up roll-up: the hub id is empty")
	}
	hub, tally := mgr.GetLocalManager(), newTally(members, clk)
	if err := hub.Add(manager.RunnableFunc(tally.publish)); err != nil {
		return fmt.Errorf("setting up the metrics of objects: %w", err)
	}
	for _, kind := range Kinds() {
		reconciler := &Reconciler{
			Kind:    kind,
			Hub:     hub.GetClient(),
			Members: members,
			Table:   table,
			Events:  events.LimitHub(hub.GetEventRecorder("flotilla-rollup"), clock.RealClock{}),
			Clock:   clk,
			HubID:   hubID,
			Pace:    NewPace(objectPace, clk).TakeOver(),
			views:   newViews(),
			tally:   tally,
		}
		if err := reconciler.setup(mgr, workers); err != nil {
			return fmt.Errorf("setting up roll-up of %s: %w", kind.Name, err)
		}
	}
	summary := &Summary{Hub: hub.GetClient(), Members: members, Pace: NewPace(summaryPace, clk), HubID: hubID, tally: tally}
	if err := summary.setup(mgr, workers); err != nil {
		return fmt.Errorf("setting up the summaries of members: %w", err)
	}
	return nil
}

func (r *Reconciler) setup(mgr mcmanager.Manager, workers int) error {
	c, err := controller.New("rollup-"+strings.ToLower(r.Kind.Name), mgr, r.Members, workers, r)
	if err != nil {
		return err
	}
	hubCache := mgr.GetLocalManager().GetCache()
	for _, hubSource := range []source.TypedSource[clusters.Request]{
		// Roll-up's own writes also arrive here. Such a pass usually writes nothing, and corrects one that used a stale
		// cache.
		source.TypedKind[client.Object, clusters.Request](hubCache, r.Kind.New(), handler.TypedEnqueueRequestsFromMapFunc(toHub), changed),
		controller.OnOffboarded(hubCache, r.requestsFor),
		controller.OnChange(r.Members, r.requestsFor),
		source.TypedFunc[clusters.Request](r.watchTable),
	} {
		if err := c.Watch(hubSource); err != nil {
			return fmt.Errorf("watching the hub: %w", err)
		}
	}
	if err := c.MultiClusterWatch(controller.Watch[client.Object](r.Kind.New(), r.requestsOfCopy, nil)); err != nil {
		return fmt.Errorf("watching members: %w", err)
	}
	return nil
}

// changed drops re-lists of unchanged objects.
var changed = predicate.TypedFuncs[client.Object]{UpdateFunc: func(e event.TypedUpdateEvent[client.Object]) bool {
	return e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion()
}}

// toHub maps an object of the hub to its request.
func toHub(_ context.Context, object client.Object) []clusters.Request {
	return []clusters.Request{{Request: ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)}}}
}

// requestsFor returns the requests for the hub objects that a change of a member affects.
func (r *Reconciler) requestsFor(ctx context.Context, name multicluster.ClusterName) []clusters.Request {
	member, registered, err := r.roster().Find(ctx, string(name))
	if err != nil {
		logf.FromContext(ctx).Error(err, "Finding out about a cluster that has changed", "cluster", string(name))
		return nil
	}
	var requests []clusters.Request
	for _, key := range r.views.markAll(string(name), member, registered) {
		requests = append(requests, clusters.Request{Request: ctrl.Request{NamespacedName: key}})
	}
	return requests
}

// watchTable queues a hub object when placement's outcome for it changes.
func (r *Reconciler) watchTable(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	r.Table.Subscribe(func(key fleet.ObjectKey, clusterName string, _ fleet.Outcome) {
		if key.Kind == r.Kind.Name && ctx.Err() == nil {
			if r.views.mark(key.Object, clusterName) {
				queue.Add(clusters.Request{Request: ctrl.Request{NamespacedName: key.Object}})
			}
		}
	})
	return nil
}

// requestsOfCopy maps a copy to its hub object.
func (r *Reconciler) requestsOfCopy(ctx context.Context, name multicluster.ClusterName, _ ctrlcluster.Cluster, object client.Object) []clusters.Request {
	if !fleet.IsOurs(object, r.HubID) {
		return nil
	}
	if !r.views.mark(client.ObjectKeyFromObject(object), string(name)) {
		return nil
	}
	return toHub(ctx, object)
}

func (s *Summary) setup(mgr mcmanager.Manager, workers int) error {
	c, err := controller.New("rollup-membercluster", mgr, s.Members, workers, s)
	if err != nil {
		return err
	}
	hubCache := mgr.GetLocalManager().GetCache()
	for _, hubSource := range []source.TypedSource[clusters.Request]{
		source.TypedKind[client.Object, clusters.Request](hubCache, &flotillav1.MemberCluster{},
			handler.TypedEnqueueRequestsFromMapFunc(toHub), predicate.TypedFuncs[client.Object]{UpdateFunc: summaryChanged}),
		controller.OnChange(s.Members, func(_ context.Context, name multicluster.ClusterName) []clusters.Request { return toSummary(name) }),
	} {
		if err := c.Watch(hubSource); err != nil {
			return fmt.Errorf("watching the hub: %w", err)
		}
	}
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		hubObjects := source.TypedKind[client.Object, clusters.Request](hubCache, kind.New(), placedAnew{})
		if err := c.Watch(hubObjects); err != nil {
			return fmt.Errorf("watching %s on the hub: %w", kind.Name, err)
		}
	}
	for object, keep := range map[client.Object]func(before, after client.Object) bool{
		&flotillav1.Redis{}:    readyChanged,
		&flotillav1.NodePool{}: readyChanged,
		&corev1.Node{}:         nodeChanged,
	} {
		if err := c.MultiClusterWatch(controller.Watch(object, toMember, keep)); err != nil {
			return fmt.Errorf("watching %T in members: %w", object, err)
		}
	}
	return nil
}

func toMember(_ context.Context, name multicluster.ClusterName, _ ctrlcluster.Cluster, _ client.Object) []clusters.Request {
	return toSummary(name)
}

func toSummary(name multicluster.ClusterName) []clusters.Request {
	return []clusters.Request{{Request: ctrl.Request{NamespacedName: client.ObjectKey{Name: string(name)}}}}
}

// summaryChanged passes changes of the fields that the summaries write, by any writer.
func summaryChanged(e event.TypedUpdateEvent[client.Object]) bool {
	before, ok := e.ObjectOld.(*flotillav1.MemberCluster)
	after, okAfter := e.ObjectNew.(*flotillav1.MemberCluster)
	return ok && okAfter && (!equality.Semantic.DeepEqual(before.Status.Summary, after.Status.Summary) ||
		!equality.Semantic.DeepEqual(before.Status.Attention, after.Status.Attention))
}

// readyChanged passes changes that affect a count or an attention item. The annotations matter for orphaned copies.
func readyChanged(before, after client.Object) bool {
	old, ok := before.(fleet.Object)
	object, okAfter := after.(fleet.Object)
	return ok && okAfter && (old.GetAnnotations()[flotillav1.AnnotationHub] != object.GetAnnotations()[flotillav1.AnnotationHub] ||
		!equality.Semantic.DeepEqual(
			apimeta.FindStatusCondition(*old.GetConditions(), flotillav1.ConditionReady),
			apimeta.FindStatusCondition(*object.GetConditions(), flotillav1.ConditionReady)))
}

// nodeChanged drops heartbeats.
func nodeChanged(before, after client.Object) bool {
	old, ok := before.(*corev1.Node)
	node, okAfter := after.(*corev1.Node)
	return ok && okAfter && nodeReady(old) != nodeReady(node)
}
