// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	"k8s.io/utils/clock"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
)

// gate passes only requests of the hub and of members whose caches are current. Dropped requests are not lost: an
// offboarded member has no work, and all keys of a member are queued when it becomes Ready. A request that is dropped at
// that very moment is still being processed, so the queue keeps its new copy until the drop is done.
type gate struct {
	controller string
	members    clusters.Directory
	clock      clock.PassiveClock
	next       reconcile.TypedReconciler[clusters.Request]
}

// Reconcile implements reconcile.TypedReconciler.
func (g *gate) Reconcile(ctx context.Context, req clusters.Request) (reconcile.Result, error) {
	if !g.open(req.ClusterName) {
		logf.FromContext(ctx).V(1).Info("Dropping a request, the cluster is not ready")
		return reconcile.Result{}, nil
	}
	start := g.clock.Now()
	defer func() { metrics.ObserveReconcile(g.members, g.controller, req.ClusterName, g.clock.Since(start)) }()

	result, err := g.next.Reconcile(ctx, req)
	if err != nil && !g.open(req.ClusterName) {
		// The member became unready during the pass. The request is queued again when the member is back, and retries
		// until then would only be dropped above.
		logf.FromContext(ctx).V(1).Info("Dropping a failed request, the cluster is not ready any more", "error", err.Error())
		return reconcile.Result{}, nil
	}
	if g.held(req.ClusterName, err) {
		// All keys are queued when writes are allowed again.
		logf.FromContext(ctx).V(1).Info("Dropping a request, nothing is written to the cluster now", "error", err.Error())
		return reconcile.Result{}, nil
	}
	return result, err
}

// held reports whether a pass failed because writes to its member are not allowed, and the Snapshot shows that. All keys
// are queued again when the Snapshot no longer does.
func (g *gate) held(clusterName multicluster.ClusterName, err error) bool {
	if _, ok := errors.AsType[*clusters.HeldError](err); !ok || clusterName == "" {
		return false
	}
	snapshot, registered := g.members.Snapshot(clusterName)
	return registered && (snapshot.Paused || snapshot.Frozen)
}

func (g *gate) open(clusterName multicluster.ClusterName) bool {
	if clusterName == "" {
		return true
	}
	snapshot, registered := g.members.Snapshot(clusterName)
	return registered && snapshot.Visible()
}
