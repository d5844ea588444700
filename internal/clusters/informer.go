// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// informer caches a kind of a member. Unlike client-go's shared informer, which has two goroutines and a buffer of 16 KiB
// for each handler, it calls the handlers itself, one after the other. They must not block, which those of Watch do not:
// they queue requests.
type informer struct {
	// Controller fills the store and calls OnAdd, OnUpdate and OnDelete.
	toolscache.Controller

	store    toolscache.Indexer
	lifetime context.Context //nolint:containedctx // The lifetime of the member's caches.

	mu        sync.Mutex // Guards the field below, and is held while a handler runs: each gets one event at a time.
	listeners []*listener
}

var _ toolscache.SharedIndexInformer = &informer{}

// listener is the registration of a handler.
type listener struct {
	handler toolscache.ResourceEventHandler
	// left says that the handler was removed; under the informer's mu.
	left bool
	// synced is closed when the handler has been given what was in the store.
	synced chan struct{}
}

// newInformer returns how a cache makes its informers, which run until the lifetime ends. They select and trim as their
// kinds are watched; counted wraps what trims.
func newInformer(lifetime context.Context, counted func(toolscache.TransformFunc) toolscache.TransformFunc,
) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(through toolscache.ListerWatcher, object runtime.Object, _ time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		kind, i := watchedAs(object), &informer{lifetime: lifetime}
		store, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
			ListerWatcher: selecting(through, kind.label), ObjectType: object, Handler: i, Indexers: indexers, Transform: counted(kind.transform()),
		})
		i.Controller, i.store = controller, store.(toolscache.Indexer) // It has indexers.
		return i
	}
}

// selecting lists and watches only what carries a label; empty lets all through.
func selecting(through toolscache.ListerWatcher, label string) toolscache.ListerWatcher {
	inner := toolscache.ToListerWatcherWithContext(through)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = label
			return inner.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = label
			return inner.WatchWithContext(ctx, options)
		},
	}
}

// RunWithContext implements toolscache.SharedInformer. It returns at once, because the cache keeps two goroutines for each
// informer until it does. The informer runs until its lifetime ends.
func (i *informer) RunWithContext(context.Context) { go i.Controller.RunWithContext(i.lifetime) }

// OnAdd implements toolscache.ResourceEventHandler.
func (i *informer) OnAdd(object any, isInInitialList bool) {
	i.tell(func(l *listener) { l.handler.OnAdd(object, isInInitialList) })
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (i *informer) OnUpdate(before, after any) {
	i.tell(func(l *listener) { l.handler.OnUpdate(before, after) })
}

// OnDelete implements toolscache.ResourceEventHandler.
func (i *informer) OnDelete(object any) {
	i.tell(func(l *listener) { l.handler.OnDelete(object) })
}

// tell calls the listeners.
func (i *informer) tell(event func(*listener)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, l := range i.listeners {
		event(l)
	}
}

// AddEventHandler implements toolscache.SharedInformer. It does not wait for the handler to be given the initial list.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	if i.IsStopped() {
		return nil, errInformerStopped
	}
	l := &listener{handler: handler, synced: make(chan struct{})}
	go i.join(l)
	return l, nil
}

// join gives a listener what is in the store, and from then on what comes. What is stored but not told yet comes twice.
func (i *informer) join(l *listener) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if l.left {
		return
	}
	i.listeners = append(i.listeners, l)
	for _, object := range i.store.List() {
		l.handler.OnAdd(object, true)
	}
	close(l.synced)
}

// RemoveEventHandler implements toolscache.SharedInformer. The handler is not called any more when it has returned.
func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listeners = slices.DeleteFunc(i.listeners, func(l *listener) bool { return l == handle })
	if l, ok := handle.(*listener); ok {
		l.left = true
	}
	return nil
}

// AddEventHandlerWithResyncPeriod implements toolscache.SharedInformer, without a resync.
func (i *informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions implements toolscache.SharedInformer, without a resync.
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// IsStopped implements toolscache.SharedInformer.
func (i *informer) IsStopped() bool { return hasEnded(i.lifetime) }

// AddIndexers implements toolscache.SharedIndexInformer.
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	return i.store.AddIndexers(indexers)
}

// GetIndexer implements toolscache.SharedIndexInformer.
func (i *informer) GetIndexer() toolscache.Indexer { return i.store }

// GetStore implements toolscache.SharedInformer.
func (i *informer) GetStore() toolscache.Store { return i.store }

// GetController implements toolscache.SharedInformer.
func (i *informer) GetController() toolscache.Controller { return i.Controller }

// SetTransform implements toolscache.SharedInformer. The kind has its own, and the cache none.
func (i *informer) SetTransform(toolscache.TransformFunc) error { return nil }

// SetWatchErrorHandler implements toolscache.SharedInformer.
func (i *informer) SetWatchErrorHandler(toolscache.WatchErrorHandler) error {
	return errors.ErrUnsupported
}

// SetWatchErrorHandlerWithContext implements toolscache.SharedInformer.
func (i *informer) SetWatchErrorHandlerWithContext(toolscache.WatchErrorHandlerWithContext) error {
	return errors.ErrUnsupported
}

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (l *listener) HasSynced() bool { return toolscache.IsDone(l) }

// HasSyncedChecker implements toolscache.ResourceEventHandlerRegistration.
func (l *listener) HasSyncedChecker() toolscache.DoneChecker { return l }

// Name implements toolscache.DoneChecker.
func (l *listener) Name() string { return "handler of a member's objects" }

// Done implements toolscache.DoneChecker.
func (l *listener) Done() <-chan struct{} { return l.synced }
