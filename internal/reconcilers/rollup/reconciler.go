// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// FieldOwner is the field manager of everything that roll-up writes.
const FieldOwner = client.FieldOwner("flotilla-rollup")

// Reconciler rolls the copies of one kind up into their hub objects.
type Reconciler struct {
	Kind Kind
	// Hub reads from the hub's cache.
	Hub     client.Client
	Members clusters.Directory
	Table   *fleet.Table
	Events  events.EventRecorder
	Clock   clock.PassiveClock
	HubID   string
	// Pace keeps writes apart; it is made by NewPace(objectPace, Clock).
	Pace *Pace

	// views remember what passes have read; nil remembers nothing, so that every pass reads everything.
	views *views
	// transit holds back statuses that say no more than that copies are on their way.
	transit transit
	// tally counts how the objects are; nil counts nothing.
	tally *tally
}

// Reconcile makes one status of everything that is known about a hub object.
func (r *Reconciler) Reconcile(ctx context.Context, req clusters.Request) (ctrl.Result, error) {
	// Before anything is read: whatever comes in meanwhile, there is one pass for each write.
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
	err = r.write(ctx, before, hubObject)
	// The second begins when the write has ended, also when its outcome is not known.
	r.Pace.Wrote(req.String())
	r.transit.wrote(req.NamespacedName, r.Clock.Now())
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of %s %q: %w", r.Kind.Name, req.NamespacedName, err)
	}
	r.sayTransitions(before, hubObject, state)
	return ctrl.Result{RequeueAfter: wave.Recheck}, nil
}

// write patches the status from what it was to what it is. Only that is sent, and nothing of it is asked back: the whole
// object has as many names as there are members.
func (r *Reconciler) write(ctx context.Context, before, after fleet.Object) error {
	data, err := client.MergeFrom(r.Kind.written(before)).Data(r.Kind.written(after))
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: after.GetNamespace(), Name: after.GetName()}}
	target.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(r.Kind.Name))
	return r.Hub.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, data), FieldOwner)
}
