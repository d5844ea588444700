// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"
)

// engagingController has a controller watch members for as long as they are engaged. That of multicluster-runtime keeps a
// goroutine for each source of each engagement until the manager ends, so that a manager whose members come and go grows.
type engagingController struct {
	controller.TypedController[Request]

	mu      sync.Mutex // Guards the fields below; no source is started while holding it.
	sources []mcsource.TypedSource[client.Object, Request]
	engaged map[multicluster.ClusterName]*engagement
}

var _ mccontroller.TypedController[Request] = &engagingController{}

// engagement is a member as long as it is engaged.
type engagement struct {
	name   multicluster.ClusterName
	member cluster.Cluster
	ctx    context.Context //nolint:containedctx // The lifetime that Engage is given.
	cancel context.CancelFunc
}

// newEngagingController wraps a controller that has not started.
func newEngagingController(inner controller.TypedController[Request]) *engagingController {
	return &engagingController{TypedController: inner, engaged: map[multicluster.ClusterName]*engagement{}}
}

// Engage implements multicluster.Aware. A cluster that is engaged already is left alone; one that takes the name of
// another replaces it.
func (c *engagingController) Engage(ctx context.Context, name multicluster.ClusterName, member cluster.Cluster) error {
	c.mu.Lock()
	old := c.engaged[name]
	if old != nil && old.member == member && !hasEnded(old.ctx) {
		c.mu.Unlock()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &engagement{name: name, member: member, ctx: ctx, cancel: cancel}
	c.engaged[name] = e
	sources := slices.Clone(c.sources)
	c.mu.Unlock()

	if old != nil {
		old.cancel()
	}
	context.AfterFunc(ctx, func() { c.forget(e) })
	for _, src := range sources {
		if err := c.watch(e, src); err != nil {
			cancel()
			return err
		}
	}
	return nil
}

// MultiClusterWatch implements mccontroller.TypedController.
func (c *engagingController) MultiClusterWatch(src mcsource.TypedSource[client.Object, Request]) error {
	c.mu.Lock()
	c.sources = append(c.sources, src)
	engaged := make([]*engagement, 0, len(c.engaged))
	for _, e := range c.engaged {
		engaged = append(engaged, e)
	}
	c.mu.Unlock()
	for _, e := range engaged {
		if err := c.watch(e, src); err != nil {
			return err
		}
	}
	return nil
}

// watch starts a source in a member, now or with the controller.
func (c *engagingController) watch(e *engagement, src mcsource.TypedSource[client.Object, Request]) error {
	inMember, wanted, err := src.ForCluster(e.name, e.member)
	switch {
	case err != nil:
		return fmt.Errorf("making a source for cluster %q: %w", e.name, err)
	case !wanted:
		return nil
	}
	if err := c.Watch(&engagedSource{TypedSource: inMember, engaged: e.ctx}); err != nil {
		return fmt.Errorf("watching cluster %q: %w", e.name, err)
	}
	return nil
}

// forget drops an engagement that has ended, and only that very one.
func (c *engagingController) forget(e *engagement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engaged[e.name] == e {
		delete(c.engaged, e.name)
	}
}

// engagedSource is a source that ends with its controller or with the engagement, whichever is first.
type engagedSource struct {
	source.TypedSource[Request]

	engaged context.Context //nolint:containedctx // The lifetime of the engagement.
}

// String names the source in logs.
func (s *engagedSource) String() string { return fmt.Sprint(s.TypedSource) }

// Start implements source.TypedSource. Nothing of it is left when the engagement has ended.
func (s *engagedSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[Request]) error {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.engaged, cancel)
	return s.TypedSource.Start(ctx, queue)
}
