// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
)

// FieldOwner is the field manager of everything that roll-up writes.
const FieldOwner = client.FieldOwner("flotilla-rollup")

// Reconciler writes the status of the hub objects of one kind.
type Reconciler struct {
	Kind Kind
	// Hub reads from the hub's cache.
	Hub     client.Client
	Members clusters.Directory
	Table   *fleet.Table
	Events  events.EventRecorder
	Clock   clock.PassiveClock
	HubID   string
	// Pace rate-limits writes; create it with NewPace(objectPace, Clock).
	Pace *Pace

	// views caches what passes have read; nil disables the cache.
	views *views
	// transit delays statuses that only report copies in progress.
	transit transit
	// tally records the states of the objects for metrics; nil disables it.
	tally *tally
}

// Reconcile computes and writes the status of a hub object.
func (r *Reconciler) Reconcile(ctx context.Context, req clusters.Request) (ctrl.Result, error) {
	// Nothing is read before the write is allowed, so that there is one pass for each write.
	if rest := r.Pace.Rest(req.String()); rest > 0 {
		return ctrl.Result{RequeueAfter: rest}, nil
	}
	key, before := fleet.ObjectKey{Kind: r.Kind.Name, Object: req.NamespacedName}, r.Kind.New()
	if err := r.Hub.Get(ctx, req.NamespacedName, before, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.Pace.Forget(req.String())
			r.views.forget(req.NamespacedName)
			r.transit.forget(req.NamespacedName)
			r.tally.forget(key)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading %s %q on the hub: %w", r.Kind.Name, req.NamespacedName, err)
	}
	state, err := r.observe(ctx, before)
	if err != nil {
		return ctrl.Result{}, err
	}
	if state.tooEarly() {
		r.tally.note(key, before)
		return ctrl.Result{}, nil
	}
	hubObject := r.Kind.draft(before)
	wave := report(r.Kind, hubObject, state, r.Clock.Now())
	r.tally.note(key, hubObject)
	if equality.Semantic.DeepEqual(r.Kind.written(before), r.Kind.written(hubObject)) {
		r.transit.settle(req.NamespacedName, hubObject)
		return ctrl.Result{RequeueAfter: wave.Recheck}, nil
	}
	if wait := r.transit.hold(req.NamespacedName, before, hubObject, r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	written := r.Kind.written(hubObject)
	err = statuspatch.Write(ctx, r.Hub, r.Kind.written(before), written, statuspatch.SameUID, FieldOwner)
	// The interval begins when the write has ended, even if its outcome is unknown.
	r.Pace.Wrote(req.String(), len(hubObject.GetFleetStatus().PlacedIn))
	r.transit.wrote(req.NamespacedName, r.Clock.Now())
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of %s %q: %w", r.Kind.Name, req.NamespacedName, err)
	}
	r.Table.RolledUp.Wrote(key, written)
	r.sayTransitions(before, hubObject, state)
	return ctrl.Result{RequeueAfter: wave.Recheck}, nil
}
