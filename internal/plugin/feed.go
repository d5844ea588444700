// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// The hub ends a watch before the timeout of a request does, and the next one goes on where it ended. So a hub that has fallen
// silent is noticed as soon as with any other request.
const (
	watchSeconds = 10
	// listPage limits how much of a large fleet the hub has to encode at a time.
	listPage = 500
)

// feed follows the objects of one kind on the hub: it lists them once, and then only what has changed is sent.
type feed struct {
	hub     *site.Site
	what    string
	newList func() client.ObjectList
	clock   clock.Clock

	mu      sync.Mutex // Guards the fields below.
	objects map[client.ObjectKey]client.Object
	trouble error
	// version is where the next watch begins; empty means with a list.
	version string
}

// list reads all objects, page by page.
func (f *feed) list(ctx context.Context) error {
	found := map[client.ObjectKey]client.Object{}
	list := f.newList()
	for {
		if err := f.hub.List(ctx, list, client.Limit(listPage), client.Continue(list.GetContinue())); err != nil {
			return f.hub.Explain("listing "+f.what, err)
		}
		err := apimeta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok {
				return errors.New("the hub sent something that is no object")
			}
			object = object.DeepCopyObject().(client.Object)
			found[client.ObjectKeyFromObject(object)] = object
			return nil
		})
		if err != nil {
			return err
		}
		if list.GetContinue() == "" {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects, f.version, f.trouble = found, list.GetResourceVersion(), nil
	return nil
}

// follow keeps the objects up to date until ctx ends.
func (f *feed) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.step(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		f.mu.Lock()
		f.trouble = err
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			f.version = ""
		}
		f.mu.Unlock()
		timer := f.clock.NewTimer(watchEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C():
		}
	}
}

// step lists the objects if that is necessary, and otherwise watches them for a while.
func (f *feed) step(ctx context.Context) error {
	f.mu.Lock()
	version := f.version
	f.mu.Unlock()
	if version == "" {
		return f.list(ctx)
	}
	changes, err := f.hub.Watch(ctx, f.newList(), &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(watchSeconds)),
	}})
	if err != nil {
		return f.hub.Explain("watching "+f.what, err)
	}
	defer changes.Stop()
	f.mu.Lock()
	f.trouble = nil
	f.mu.Unlock()
	for change := range changes.ResultChan() {
		if change.Type == watch.Error {
			return f.hub.Explain("watching "+f.what, apierrors.FromObject(change.Object))
		}
		f.take(change)
	}
	return nil
}

// take applies a change.
func (f *feed) take(change watch.Event) {
	object, ok := change.Object.(client.Object)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = object.GetResourceVersion()
	switch change.Type {
	case watch.Added, watch.Modified:
		f.objects[client.ObjectKeyFromObject(object)] = object
	case watch.Deleted:
		delete(f.objects, client.ObjectKeyFromObject(object))
	}
}

// known returns the objects in order, and what prevents that they are up to date.
func (f *feed) known() ([]client.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	objects := make([]client.Object, 0, len(f.objects))
	for _, object := range f.objects {
		objects = append(objects, object)
	}
	slices.SortFunc(objects, func(a, b client.Object) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return objects, f.trouble
}

// followFleet lists the fleet, and returns a function that reads it as it is then. Reading costs the hub nothing.
func followFleet(ctx context.Context, hub *site.Site, clk clock.Clock) (func() (*fleetView, error), error) {
	feeds := []*feed{{hub: hub, what: "MemberClusters", clock: clk, newList: func() client.ObjectList { return &flotillav1.MemberClusterList{} }}}
	for _, kind := range placedKinds {
		feeds = append(feeds, &feed{hub: hub, what: "objects of kind " + kind.Name, clock: clk, newList: func() client.ObjectList { return kind.NewList() }})
	}
	for _, f := range feeds {
		if err := f.list(ctx); err != nil {
			return nil, err
		}
	}
	for _, f := range feeds {
		go f.follow(ctx)
	}
	return func() (*fleetView, error) {
		view := &fleetView{}
		for _, f := range feeds {
			objects, err := f.known()
			if err != nil {
				return nil, err
			}
			for _, object := range objects {
				if member, is := object.(*flotillav1.MemberCluster); is {
					view.members = append(view.members, *member)
				} else {
					view.objects = append(view.objects, object.(fleet.Object))
				}
			}
		}
		return view, nil
	}, nil
}
