// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
)

const (
	// listPatience is how long a list may take.
	listPatience = time.Minute
	// askEvery is the interval at which the hub is asked how it is, and askPatience how long that may take. It is also what
	// notices that the hub is silent, long before a watch does.
	askEvery    = 5 * time.Second
	askPatience = 4 * time.Second
)

// link is whether the page shows the present.
type link struct {
	live bool
	// asOf is when it last did, and trouble why it does not.
	asOf    time.Time
	trouble string
}

// watcher watches what is shown.
type watcher struct {
	hub   client.WithWatch
	clock clock.Clock
	ask   func(ctx context.Context) (HubState, error)
	// dirty has an entry when something has changed.
	dirty chan struct{}

	members, redises, pools, events cache.SharedIndexInformer

	mu sync.Mutex
	// broken are the errors of watches that are not open, by what they watch.
	broken map[string]error
	// unheard is the error of the last question to the hub, and heard when it last answered.
	unheard error
	heard   time.Time
	state   HubState
}

func newWatcher(hub client.WithWatch, clk clock.Clock, ask func(ctx context.Context) (HubState, error)) *watcher {
	w := &watcher{hub: hub, clock: clk, ask: ask, dirty: make(chan struct{}, 1), broken: map[string]error{}, heard: clk.Now()}
	w.members = w.informer("MemberClusters", &flotillav1.MemberCluster{}, func() client.ObjectList { return &flotillav1.MemberClusterList{} })
	w.redises = w.informer("Redises", &flotillav1.Redis{}, func() client.ObjectList { return &flotillav1.RedisList{} })
	w.pools = w.informer("NodePools", &flotillav1.NodePool{}, func() client.ObjectList { return &flotillav1.NodePoolList{} })
	w.events = w.informer(watchedEvents, &eventsv1.Event{}, func() client.ObjectList { return &eventsv1.EventList{} },
		fields.OneTermEqualSelector("type", corev1.EventTypeWarning))
	return w
}

// watchedEvents names the watch of events. The page does without, because not everybody may list events.
const watchedEvents = "events"

// informer watches a kind, as far as the selectors select.
func (w *watcher) informer(what string, kind client.Object, newList func() client.ObjectList, selectors ...fields.Selector) cache.SharedIndexInformer {
	options := func(raw metav1.ListOptions) *client.ListOptions {
		options := &client.ListOptions{Raw: &raw}
		for _, selector := range selectors {
			options.FieldSelector = selector
		}
		return options
	}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listPatience)
			defer cancel()
			list := newList()
			err := w.hub.List(ctx, list, options(raw))
			w.opened(what, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			opened, err := w.hub.Watch(ctx, newList(), options(raw))
			w.opened(what, err)
			return opened, err
		},
	}, kind, 0, cache.Indexers{})
	// These fail only for an informer that runs.
	_ = informer.SetTransform(strip)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { w.opened(what, err) })
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.changed() }, UpdateFunc: func(any, any) { w.changed() }, DeleteFunc: func(any) { w.changed() },
	})
	return informer
}

// strip drops what is not shown.
func strip(object any) (any, error) {
	if shown, ok := object.(client.Object); ok {
		shown.SetManagedFields(nil)
		if annotations := shown.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
			shown.SetAnnotations(annotations)
		}
	}
	return object, nil
}

// opened records whether a watch could be opened, or has ended with an error.
func (w *watcher) opened(what string, err error) {
	w.mu.Lock()
	_, was := w.broken[what]
	if err == nil {
		delete(w.broken, what)
	} else {
		w.broken[what] = err
	}
	w.mu.Unlock()
	if was != (err != nil) {
		w.changed()
	}
}

// changed has the next model made soon.
func (w *watcher) changed() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// run watches until the context ends, and asks the hub how it is.
func (w *watcher) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, informer := range []cache.SharedIndexInformer{w.members, w.redises, w.pools, w.events} {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	timer := w.clock.NewTimer(askEvery)
	defer timer.Stop()
	for ctx.Err() == nil {
		w.askHub(ctx)
		select {
		case <-ctx.Done():
		case <-timer.C():
			timer.Reset(askEvery)
		}
	}
}

// askHub asks the hub how it is.
func (w *watcher) askHub(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	state, err := w.ask(limited)
	w.mu.Lock()
	differs := (err != nil) != (w.unheard != nil) || state != w.state && err == nil
	w.unheard = err
	if err == nil {
		w.state = state
		if !w.brokenLocked() {
			w.heard = w.clock.Now()
		}
	}
	w.mu.Unlock()
	if differs {
		w.changed()
	}
}

// brokenLocked reports whether a watch is broken that the page does not do without.
func (w *watcher) brokenLocked() bool {
	for what := range w.broken {
		if what != watchedEvents {
			return true
		}
	}
	return false
}

// link returns whether what the watches have is the present.
func (w *watcher) link() (link, HubState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := link{live: w.unheard == nil && !w.brokenLocked(), asOf: w.heard}
	switch {
	case w.unheard != nil:
		l.trouble, _ = console.Split(w.unheard)
	case !l.live:
		for what, err := range w.broken {
			if what != watchedEvents {
				l.trouble, _ = console.Split(fmt.Errorf("watching %s: %w", what, err))
			}
		}
	}
	return l, w.state
}

// eventsTrouble returns why there are no events; empty if there are.
func (w *watcher) eventsTrouble() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.broken[watchedEvents]; err != nil {
		said, _ := console.Split(err)
		return said
	}
	return ""
}

// wait waits until everything that the page needs has been read.
func (w *watcher) wait(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.members.HasSynced, w.redises.HasSynced, w.pools.HasSynced)
}
