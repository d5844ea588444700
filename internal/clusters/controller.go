// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
)

const (
	// passTimeout ends a pass that hangs; every call in it has a shorter deadline of its own.
	passTimeout = time.Minute
	// sourceStartTimeout is for sources on the hub; those on members do not wait for anything.
	sourceStartTimeout = 2 * time.Minute
	// The backoff of a failing request. The longest one is about how late a person may notice that a cause is gone.
	firstBackoff, longestBackoff = 5 * time.Millisecond, 5 * time.Minute
)

// NewController makes a controller with a fair queue over members, a gate that drops work of members that are not ready
// (all their keys are queued again when they are), a deadline per pass and panics recovered.
// Requests with an empty ClusterName (the hub) always pass the gate.
func NewController(name string, mgr mcmanager.Manager, members Directory, workers int, reconciler reconcile.TypedReconciler[Request]) (mccontroller.TypedController[Request], error) {
	if workers < 1 {
		return nil, fmt.Errorf("making controller %q: it has %d workers, it needs at least one", name, workers)
	}
	// Every option is set here, because an unmanaged controller has none of the manager's defaults.
	inner, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[Request]{
		MaxConcurrentReconciles: workers,
		CacheSyncTimeout:        sourceStartTimeout,
		RecoverPanic:            new(true),
		ReconciliationTimeout:   passTimeout,
		SkipNameValidation:      mgr.GetControllerOptions().SkipNameValidation,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Request](firstBackoff, longestBackoff),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[Request]) workqueue.TypedRateLimitingInterface[Request] {
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

// logConstructor replaces that of controller-runtime, which does not know our requests.
func logConstructor(name string, base logr.Logger) func(*Request) logr.Logger {
	base = base.WithValues("controller", name)
	return func(req *Request) logr.Logger {
		if req == nil {
			// The controller itself speaks, once for each source of each member.
			return base.V(1)
		}
		log := base.WithValues("namespace", req.Namespace, "name", req.Name)
		if req.ClusterName != "" {
			log = log.WithValues("cluster", string(req.ClusterName))
		}
		return log
	}
}
