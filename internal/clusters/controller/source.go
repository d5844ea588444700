// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
)

// MapFunc maps an object of a member to requests. It runs on the informer's goroutine, which all controllers share: it
// must only read caches and must not block.
type MapFunc[T client.Object] func(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster, obj T) []clusters.Request

// Recovering is a cluster that announces each time it has become Ready. OnRecovered registers fn, which is called after
// the Snapshot shows the new state, until ctx ends. A cluster that is engaged before it is Ready for the first time also
// calls fn then. Sources use it to queue the requests that the gate has dropped. fn must only read caches.
type Recovering interface {
	OnRecovered(ctx context.Context, fn func())
}

// Watch returns a source for MultiClusterWatch. keep filters updates; nil keeps all. Relists of unchanged objects are
// always skipped. An update queues the requests of both the old and the new object.
//
// The source does not wait for caches: the caller of Engage has already synced them. A kind that the cluster's cache
// rejects with *cache.ErrResourceNotCached is not watched there.
func Watch[T client.Object](obj T, toRequests MapFunc[T], keep func(before, after T) bool) mcsource.TypedSource[client.Object, clusters.Request] {
	return &memberSource[T]{obj: obj, toRequests: toRequests, keep: keep}
}

// ToSelf maps an object to its own request.
func ToSelf[T client.Object](_ context.Context, clusterName multicluster.ClusterName, _ cluster.Cluster, obj T) []clusters.Request {
	return []clusters.Request{{ClusterName: clusterName, Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}}}
}

// OnChange returns a source for Watch of a controller. It queues the requests that toRequests returns for a member
// whenever its Snapshot changes or it is removed. Requests of the hub are fresh; those of a member come in bulk and wait
// behind actual changes there. toRequests runs on a goroutine of the source and must only read caches. OnChange must be
// called before the pool starts.
func OnChange(members clusters.Directory, toRequests func(ctx context.Context, clusterName multicluster.ClusterName) []clusters.Request) source.TypedSource[clusters.Request] {
	s := &changeSource{toRequests: toRequests, changed: map[multicluster.ClusterName]struct{}{}, wake: make(chan struct{}, 1)}
	members.Subscribe(s.note)
	return s
}

// OnOffboarded returns a source that queues requests when a member has been offboarded: it watches for the deletion of
// the MemberCluster, which the publisher removes last.
func OnOffboarded(hubCache cache.Cache, toRequests func(ctx context.Context, clusterName multicluster.ClusterName) []clusters.Request) source.TypedSource[clusters.Request] {
	return source.TypedKind(hubCache, &flotillav1.MemberCluster{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, object *flotillav1.MemberCluster) []clusters.Request {
			return toRequests(ctx, multicluster.ClusterName(object.Name))
		}), predicate.TypedFuncs[*flotillav1.MemberCluster]{
			CreateFunc: func(event.TypedCreateEvent[*flotillav1.MemberCluster]) bool { return false },
			UpdateFunc: func(event.TypedUpdateEvent[*flotillav1.MemberCluster]) bool { return false },
		})
}

// memberSource implements Watch. It replaces Kind of multicluster-runtime, which blocks until the cache is synced and
// does not distinguish initial lists from changes.
type memberSource[T client.Object] struct {
	obj        T
	toRequests MapFunc[T]
	keep       func(before, after T) bool
}

// ForCluster implements mcsource.TypedSource.
func (s *memberSource[T]) ForCluster(clusterName multicluster.ClusterName, member cluster.Cluster) (source.TypedSource[clusters.Request], bool, error) {
	return &memberWatch[T]{memberSource: s, clusterName: clusterName, member: member}, true, nil
}

// memberWatch is a memberSource in one engaged member.
type memberWatch[T client.Object] struct {
	*memberSource[T]

	clusterName multicluster.ClusterName
	member      cluster.Cluster
}

// String implements fmt.Stringer. It is used in logs.
func (w *memberWatch[T]) String() string { return fmt.Sprintf("%T in %s", w.obj, w.clusterName) }

// Start implements source.TypedSource. ctx ends with the engagement. An error would end the manager, so Start returns nil
// if there is nothing to watch: the engagement has ended, or the member's cache does not have the kind.
func (w *memberWatch[T]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	// A controller that starts late also starts the sources of engagements that have ended.
	if hasEnded(ctx) {
		return nil
	}
	err := w.watch(ctx, queue)
	if hasEnded(ctx) || isNotCached(err) || errors.Is(err, kinds.ErrStopped) {
		return nil
	}
	return err
}

// watch adds the handler to the member's informer until ctx ends.
func (w *memberWatch[T]) watch(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	informer, err := w.member.GetCache().GetInformer(ctx, w.obj, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("getting the informer for %T of cluster %q: %w", w.obj, w.clusterName, err)
	}
	registration, err := informer.AddEventHandler(w.handler(ctx, queue))
	switch {
	case err != nil && informer.IsStopped():
		return kinds.ErrStopped
	case err != nil:
		return fmt.Errorf("watching %T of cluster %q: %w", w.obj, w.clusterName, err)
	}
	// The caches of a member may outlive its engagement.
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })

	if recovering, ok := w.member.(Recovering); ok {
		recovering.OnRecovered(ctx, func() { w.queueAll(ctx, queue) })
	}
	return nil
}

// hasEnded reports whether an engagement has ended.
func hasEnded(ctx context.Context) bool { return ctx.Err() != nil }

// isNotCached reports whether a member's cache does not have a kind.
func isNotCached(err error) bool {
	_, ok := errors.AsType[*cache.ErrResourceNotCached](err)
	return ok
}

func (w *memberWatch[T]) handler(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) toolscache.ResourceEventHandlerDetailedFuncs {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(added any, isInInitialList bool) {
			if obj, ok := added.(T); ok {
				at := levelFresh
				if isInInitialList {
					at = levelInitial
				}
				w.queue(ctx, queue, at, obj)
			}
		},
		UpdateFunc: func(before, after any) {
			old, oldOK := before.(T)
			obj, ok := after.(T)
			// A relist delivers every object as an update.
			if !ok || !oldOK || old.GetResourceVersion() == obj.GetResourceVersion() {
				return
			}
			if w.keep != nil && !w.keep(old, obj) {
				return
			}
			w.queue(ctx, queue, levelFresh, old, obj)
		},
		DeleteFunc: func(deleted any) {
			// A missed deletion is found at a relist.
			if tombstone, ok := deleted.(toolscache.DeletedFinalStateUnknown); ok {
				deleted = tombstone.Obj
			}
			if obj, ok := deleted.(T); ok {
				w.queue(ctx, queue, levelFresh, obj)
			}
		},
	}
}

// queue adds the requests of objects.
func (w *memberWatch[T]) queue(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request], at level, objs ...T) {
	// Events may still arrive between the end of the engagement and the removal of the handler.
	if ctx.Err() != nil {
		return
	}
	for _, obj := range objs {
		addAt(queue, at, w.toRequests(ctx, w.clusterName, w.member, obj))
	}
}

// queueAll adds the requests of all objects, because the gate has dropped those that came while the member was away.
func (w *memberWatch[T]) queueAll(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) {
	if err := w.each(ctx, func(obj T) { w.queue(ctx, queue, levelInitial, obj) }); err != nil && ctx.Err() == nil {
		// The informer exists, so the scheme lacks the list type of the kind.
		logf.FromContext(ctx).Error(err, "Queueing all objects of a recovered cluster", "cluster", string(w.clusterName))
	}
}

// each calls fn for each object in the cache. fn must not modify it.
func (w *memberWatch[T]) each(ctx context.Context, fn func(T)) error {
	scheme := w.member.GetScheme()
	gvk, err := apiutil.GVKForObject(w.obj, scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", w.obj, err)
	}
	empty, err := scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return fmt.Errorf("finding the list of %T: %w", w.obj, err)
	}
	list, ok := empty.(client.ObjectList)
	if !ok {
		return fmt.Errorf("finding the list of %T: %T is not a list", w.obj, empty)
	}
	if err := w.member.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing %T in the cache: %w", w.obj, err)
	}
	return apimeta.EachListItem(list, func(item runtime.Object) error {
		if obj, ok := item.(T); ok {
			fn(obj)
		}
		return nil
	})
}

// addAt adds requests at a level, which queues other than fairQueue ignore.
func addAt(queue workqueue.TypedRateLimitingInterface[clusters.Request], at level, requests []clusters.Request) {
	if levelled, ok := queue.(priorityqueue.PriorityQueue[clusters.Request]); ok {
		levelled.AddWithOpts(priorityqueue.AddOpts{Priority: new(at.priority())}, requests...)
		return
	}
	for _, request := range requests {
		queue.Add(request)
	}
}

// changeSource implements OnChange.
type changeSource struct {
	toRequests func(ctx context.Context, clusterName multicluster.ClusterName) []clusters.Request
	// wake has a buffer of one, so that note never blocks.
	wake chan struct{}

	mu sync.Mutex
	// changed holds the members that have changed since the last take. Changes before Start are kept. Guarded by mu.
	changed map[multicluster.ClusterName]struct{}
}

// String implements fmt.Stringer. It is used in logs.
func (s *changeSource) String() string { return "changes of members" }

// note records a change of a member. It is called by the pool.
func (s *changeSource) note(clusterName multicluster.ClusterName) {
	s.mu.Lock()
	s.changed[clusterName] = struct{}{}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Start implements source.TypedSource.
func (s *changeSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			}
			for _, clusterName := range s.take() {
				for _, request := range s.toRequests(ctx, clusterName) {
					at := levelInitial
					if request.ClusterName == "" {
						at = levelFresh
					}
					addAt(queue, at, []clusters.Request{request})
				}
			}
		}
	}()
	return nil
}

func (s *changeSource) take() []multicluster.ClusterName {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.changed))
	clear(s.changed)
	return names
}
