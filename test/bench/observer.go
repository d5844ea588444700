// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// change is a version of a NodePool that a watch showed.
type change struct {
	at            time.Time
	cluster, name string
	// pool is nil when the object is gone.
	pool *flotillav1.NodePool
}

// observer watches the NodePools of all clusters. All times come from it.
type observer struct {
	mu sync.Mutex
	// latest is by cluster and name.
	latest map[string]map[string]*flotillav1.NodePool
	last   time.Time
	open   map[*arrivals]bool
}

func observe(ctx context.Context, f *Fleet) (*observer, error) {
	o := &observer{latest: map[string]map[string]*flotillav1.NodePool{}, open: map[*arrivals]bool{}}
	for _, c := range f.everything() {
		o.latest[c.name] = map[string]*flotillav1.NodePool{}
		watched, err := cache.New(c.config, cache.Options{Scheme: newScheme(), DefaultTransform: cache.TransformStripManagedFields()})
		if err != nil {
			return nil, fmt.Errorf("watching %q: %w", c.name, err)
		}
		go func() { _ = watched.Start(ctx) }()
		informer, err := watched.GetInformer(ctx, &flotillav1.NodePool{})
		if err != nil {
			return nil, fmt.Errorf("watching %q: %w", c.name, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(now any) { o.saw(c.name, now.(*flotillav1.NodePool)) },
			UpdateFunc: func(_, now any) { o.saw(c.name, now.(*flotillav1.NodePool)) },
			DeleteFunc: func(last any) { o.lost(c.name, last) },
		})
		if err != nil {
			return nil, fmt.Errorf("watching %q: %w", c.name, err)
		}
	}
	return o, nil
}

func (o *observer) saw(cluster string, pool *flotillav1.NodePool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest[cluster][pool.Name] = pool
	o.tell(change{at: time.Now(), cluster: cluster, name: pool.Name, pool: pool})
}

func (o *observer) lost(cluster string, last any) {
	if gone, unknown := last.(toolscache.DeletedFinalStateUnknown); unknown {
		last = gone.Obj
	}
	name := last.(*flotillav1.NodePool).Name
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.latest[cluster], name)
	o.tell(change{at: time.Now(), cluster: cluster, name: name})
}

// tell is called with mu held.
func (o *observer) tell(c change) {
	o.last = c.at
	for a := range o.open {
		for _, key := range a.completes(c) {
			a.note(key, c.at)
		}
	}
}

// get returns the last version of an object that was seen; nil when there is none.
func (o *observer) get(cluster, name string) *flotillav1.NodePool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest[cluster][name]
}

// count returns how many objects there are in a cluster.
func (o *observer) count(cluster string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.latest[cluster])
}

// quiet waits until nothing changed for a while, and returns when it last did.
func (o *observer) quiet(ctx context.Context, while, patience time.Duration) time.Time {
	for end := time.Now().Add(patience); ; {
		o.mu.Lock()
		last := o.last
		o.mu.Unlock()
		rest := time.Until(last.Add(while))
		if rest <= 0 || time.Now().After(end) || !pause(ctx, rest) {
			return last
		}
	}
}

// arrivals are the moments at which things that are waited for were seen first.
type arrivals struct {
	observer *observer
	// completes returns the keys that a change makes true. The observer's lock is held.
	completes func(change) []string

	missing map[string]bool
	at      map[string]time.Time
	done    chan struct{}
}

// expect begins to wait for keys.
func (o *observer) expect(keys []string, completes func(change) []string) *arrivals {
	a := &arrivals{observer: o, completes: completes, missing: map[string]bool{}, at: map[string]time.Time{}, done: make(chan struct{})}
	for _, key := range keys {
		a.missing[key] = true
	}
	if len(keys) == 0 {
		close(a.done)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[a] = true
	return a
}

func (a *arrivals) note(key string, at time.Time) {
	if !a.missing[key] {
		return
	}
	delete(a.missing, key)
	a.at[key] = at
	if len(a.missing) == 0 {
		close(a.done)
	}
}

// wait returns when everything was seen, or the patience is over. What is missing then is an error.
func (a *arrivals) wait(ctx context.Context, patience time.Duration) (map[string]time.Time, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	a.observer.mu.Lock()
	defer a.observer.mu.Unlock()
	delete(a.observer.open, a)
	if len(a.missing) == 0 {
		return a.at, nil
	}
	var some []string
	for key := range a.missing {
		some = append(some, key)
	}
	slices.Sort(some)
	return a.at, fmt.Errorf("%d of %d not seen in %v: %s", len(some), len(some)+len(a.at), patience, strings.Join(some[:min(len(some), 5)], ", "))
}

// pause waits; it returns false when the context ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
