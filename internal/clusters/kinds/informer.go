// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

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

// ErrStopped is returned when a handler is added to a stopped informer.
var ErrStopped = errors.New("the informer has stopped")

// informer caches a kind of a member. Unlike client-go's shared informer, which needs two goroutines and a buffer of 16
// KiB per handler, it calls the handlers itself, one after the other. They must not block; those of Watch only queue
// requests.
type informer struct {
	// Controller fills the store and calls OnAdd, OnUpdate and OnDelete.
	toolscache.Controller

	store    toolscache.Indexer
	lifetime context.Context //nolint:containedctx // The lifetime of the member's caches.

	mu        sync.Mutex // Guards the fields below, and is held while handlers run: each receives one event at a time.
	listeners []*listener
	newest    Change
}

var _ toolscache.SharedIndexInformer = &informer{}

// listener is the registration of a handler.
type listener struct {
	handler toolscache.ResourceEventHandler
	// left is true if the handler was removed. Guarded by the informer's mu.
	left bool
	// synced is closed when the handler has received the contents of the store.
	synced chan struct{}
}

// NewInformer returns a factory of informers that run until lifetime ends. They select and trim objects as defined for
// their kind. counted wraps the transform.
func NewInformer(lifetime context.Context, counted func(toolscache.TransformFunc) toolscache.TransformFunc,
) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(through toolscache.ListerWatcher, object runtime.Object, _ time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		kind, i := watchedAs(object), &informer{lifetime: lifetime}
		trim := counted(kind.transform())
		store, controller := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
			ListerWatcher: i.selecting(through, kind.label, trim), ObjectType: object, Handler: i, Indexers: indexers, Transform: trim,
		})
		i.Controller, i.store = controller, store.(toolscache.Indexer) // It has indexers.
		return i
	}
}

// selecting restricts lists and watches to objects with a label. An empty label selects all. What is listed is trimmed.
// Watches carry the newest change that was received before.
func (i *informer) selecting(through toolscache.ListerWatcher, label string, trim toolscache.TransformFunc) toolscache.ListerWatcher {
	inner := toolscache.ToListerWatcherWithContext(through)
	return &toolscache.ListWatch{
		ListWithContextFunc: inPages(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = label
			return inner.ListWithContext(ctx, options)
		}, trim),
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = label
			return inner.WatchWithContext(WithNewest(ctx, i.newestChange), options)
		},
	}
}

// RunWithContext implements toolscache.SharedInformer. It returns immediately, because the cache keeps two goroutines per
// informer until it does. The informer runs until its lifetime ends.
func (i *informer) RunWithContext(context.Context) { go i.Controller.RunWithContext(i.lifetime) }

// OnAdd implements toolscache.ResourceEventHandler.
func (i *informer) OnAdd(object any, isInInitialList bool) {
	i.notify(object, false, func(l *listener) { l.handler.OnAdd(object, isInInitialList) })
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (i *informer) OnUpdate(before, after any) {
	i.notify(after, false, func(l *listener) { l.handler.OnUpdate(before, after) })
}

// OnDelete implements toolscache.ResourceEventHandler.
func (i *informer) OnDelete(object any) {
	i.notify(object, true, func(l *listener) { l.handler.OnDelete(object) })
}

// notify records a change and calls event for each listener.
func (i *informer) notify(object any, deleted bool, event func(*listener)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.note(object, deleted)
	for _, l := range i.listeners {
		event(l)
	}
}

// AddEventHandler implements toolscache.SharedInformer. It does not wait until the handler has received the initial list.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	if i.IsStopped() {
		return nil, ErrStopped
	}
	l := &listener{handler: handler, synced: make(chan struct{})}
	go i.join(l)
	return l, nil
}

// join adds a listener, after which it receives the contents of the store and all events. It may receive an object twice
// if its event is still pending.
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

// RemoveEventHandler implements toolscache.SharedInformer. The handler is not called after it returns.
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
func (i *informer) IsStopped() bool { return i.lifetime.Err() != nil }

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

// SetTransform implements toolscache.SharedInformer. It is a no-op: the kind defines the transform.
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
