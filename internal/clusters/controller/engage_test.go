// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// startedController is a controller that has started: what it is to watch starts at once.
type startedController struct {
	controller.TypedController[clusters.Request]

	ctx context.Context
}

func (c *startedController) Watch(src source.TypedSource[clusters.Request]) error {
	return src.Start(c.ctx, nil)
}

// spySource keeps the contexts that it is started with in each member.
type spySource struct {
	started  []context.Context
	unwanted bool
	fails    error
}

var _ mcsource.TypedSource[client.Object, clusters.Request] = &spySource{}

func (s *spySource) ForCluster(multicluster.ClusterName, cluster.Cluster) (source.TypedSource[clusters.Request], bool, error) {
	return source.TypedFunc[clusters.Request](func(ctx context.Context, _ workqueue.TypedRateLimitingInterface[clusters.Request]) error {
		s.started = append(s.started, ctx)
		return nil
	}), !s.unwanted, s.fails
}

// anyCluster is a cluster of which nothing is asked.
type anyCluster struct{ cluster.Cluster }

func TestEngagingController(t *testing.T) {
	g := NewWithT(t)
	running, stop := context.WithCancel(t.Context())
	defer stop()
	c := newEngagingController(&startedController{ctx: running})
	before, later, unwanted := &spySource{}, &spySource{}, &spySource{unwanted: true}
	g.Expect(c.MultiClusterWatch(before)).To(Succeed())
	g.Expect(c.MultiClusterWatch(unwanted)).To(Succeed())

	one, other := &anyCluster{}, &anyCluster{}
	engaged, disengage := context.WithCancel(t.Context())
	g.Expect(c.Engage(engaged, "eu-1", one)).To(Succeed())
	g.Expect(c.Engage(engaged, "eu-1", one)).To(Succeed())
	g.Expect(before.started).To(HaveLen(1), "what is engaged is left alone")
	g.Expect(c.MultiClusterWatch(later)).To(Succeed())
	g.Expect(later.started).To(HaveLen(1), "a source that comes later is started in what is engaged")
	g.Expect(unwanted.started).To(BeEmpty())

	g.Expect(c.Engage(engaged, "eu-1", other)).To(Succeed())
	g.Expect(before.started).To(HaveLen(2))
	g.Eventually(before.started[0].Done()).Should(BeClosed(), "another cluster replaces the one before")
	g.Expect(before.started[1].Err()).NotTo(HaveOccurred())

	disengage()
	g.Eventually(before.started[1].Done()).Should(BeClosed())
	g.Eventually(later.started[1].Done()).Should(BeClosed())
	g.Eventually(func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.engaged)
	}).Should(BeZero(), "nothing is kept of what has left")

	g.Expect(c.Engage(t.Context(), "eu-2", one)).To(Succeed())
	stop()
	g.Eventually(before.started[2].Done()).Should(BeClosed(), "sources end with the controller")
}

func TestEngagingController_tells_why_a_source_cannot_be_made(t *testing.T) {
	g := NewWithT(t)
	c, fails := newEngagingController(&startedController{ctx: t.Context()}), errors.New("not there")
	g.Expect(c.MultiClusterWatch(&spySource{fails: fails})).To(Succeed())
	g.Expect(c.Engage(t.Context(), "eu-1", &anyCluster{})).To(MatchError(fails))
	g.Eventually(func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.engaged)
	}).Should(BeZero())
}
