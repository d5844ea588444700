// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

const (
	// passTimeout ends a pass that hangs. Every call in it has a shorter deadline of its own.
	passTimeout = time.Minute
	// sourceStartTimeout applies to sources on the hub. Those on members do not wait for anything.
	sourceStartTimeout = 2 * time.Minute
	// The backoff of a failing request. The longest one is about how late a fixed cause may be noticed.
	firstBackoff, longestBackoff = 5 * time.Millisecond, 5 * time.Minute
)

// New returns a controller with a fair queue over members, a gate that drops requests of members that are not ready (all
// their keys are queued again once they are), a deadline per pass, and panic recovery. Requests with an empty ClusterName
// (the hub) always pass the gate.
func New(name string, mgr mcmanager.Manager, members clusters.Directory, workers int, reconciler reconcile.TypedReconciler[clusters.Request]) (mccontroller.TypedController[clusters.Request], error) {
	if workers < 1 {
		return nil, fmt.Errorf("making controller %q: it has %d workers, it needs at least one", name, workers)
	}
	// Set every option here, because an unmanaged controller does not inherit the defaults of the manager.
	inner, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[clusters.Request]{
		MaxConcurrentReconciles: workers,
		CacheSyncTimeout:        sourceStartTimeout,
		RecoverPanic:            new(true),
		ReconciliationTimeout:   passTimeout,
		SkipNameValidation:      mgr.GetControllerOptions().SkipNameValidation,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[clusters.Request](firstBackoff, longestBackoff),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[clusters.Request]) workqueue.TypedRateLimitingInterface[clusters.Request] {
			queue := newFairQueue(name, workers, limiter)
			queues.add(name, queue.lanes, members)
			return queue
		},
		LogConstructor: logConstructor(name, mgr.GetLogger()),
		Reconciler:     &gate{controller: name, members: members, clock: clock.RealClock{}, next: reconciler},
	})
	if err != nil {
		return nil, fmt.Errorf("making controller %q: %w", name, err)
	}
	created := newEngagingController(inner)
	if err := mgr.Add(created); err != nil {
		return nil, fmt.Errorf("adding controller %q to the manager: %w", name, err)
	}
	return created, nil
}

// logConstructor returns a replacement for the LogConstructor of controller-runtime, which does not support
// clusters.Request.
func logConstructor(name string, base logr.Logger) func(*clusters.Request) logr.Logger {
	base = base.WithValues("controller", name)
	return func(req *clusters.Request) logr.Logger {
		if req == nil {
			// The controller itself logs, once for each source of each member.
			return base.V(1)
		}
		log := base.WithValues("namespace", req.Namespace, "name", req.Name)
		if req.ClusterName != "" {
			log = log.WithValues("cluster", string(req.ClusterName))
		}
		return log
	}
}
