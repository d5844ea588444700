// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

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

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// engagingController makes a controller watch members while they are engaged. The controller of multicluster-runtime
// keeps a goroutine per source and engagement until the manager ends, which leaks as members come and go.
type engagingController struct {
	controller.TypedController[clusters.Request]

	mu      sync.Mutex // Guards the fields below; not held while sources are started.
	sources []mcsource.TypedSource[client.Object, clusters.Request]
	engaged map[multicluster.ClusterName]*engagement
}

var _ mccontroller.TypedController[clusters.Request] = &engagingController{}

// engagement is the engagement of one member.
type engagement struct {
	name   multicluster.ClusterName
	member cluster.Cluster
	ctx    context.Context //nolint:containedctx // It ends with the engagement.
	cancel context.CancelFunc
}

// newEngagingController wraps a controller that has not started.
func newEngagingController(inner controller.TypedController[clusters.Request]) *engagingController {
	return &engagingController{TypedController: inner, engaged: map[multicluster.ClusterName]*engagement{}}
}

// Engage implements multicluster.Aware. It is a no-op for a cluster that is already engaged. A different cluster of the
// same name replaces the engaged one.
func (c *engagingController) Engage(ctx context.Context, name multicluster.ClusterName, member cluster.Cluster) error {
	c.mu.Lock()
	old := c.engaged[name]
	if old != nil && old.member == member && old.ctx.Err() == nil {
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
func (c *engagingController) MultiClusterWatch(src mcsource.TypedSource[client.Object, clusters.Request]) error {
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

// watch starts a source in a member, or adds it to a controller that has not started.
func (c *engagingController) watch(e *engagement, src mcsource.TypedSource[client.Object, clusters.Request]) error {
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

// forget removes an engagement that has ended, unless another one has replaced it.
func (c *engagingController) forget(e *engagement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engaged[e.name] == e {
		delete(c.engaged, e.name)
	}
}

// engagedSource is a source that ends with its controller or with the engagement, whichever ends first.
type engagedSource struct {
	source.TypedSource[clusters.Request]

	engaged context.Context //nolint:containedctx // It ends with the engagement.
}

// String implements fmt.Stringer. It is used in logs.
func (s *engagedSource) String() string { return fmt.Sprint(s.TypedSource) }

// Start implements source.TypedSource. The source is released when the engagement ends.
func (s *engagedSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.engaged, cancel)
	return s.TypedSource.Start(ctx, queue)
}
