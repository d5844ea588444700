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
	// Pace holds writes back; it is made by NewPace(objectPace, Clock).
	Pace *Pace
}

// Reconcile makes one status of everything that is known about a hub object.
func (r *Reconciler) Reconcile(ctx context.Context, req clusters.Request) (ctrl.Result, error) {
	hubObject := r.Kind.New()
	if err := r.Hub.Get(ctx, req.NamespacedName, hubObject); err != nil {
		if apierrors.IsNotFound(err) {
			r.Pace.Forget(req.String())
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading %s %q on the hub: %w", r.Kind.Name, req.NamespacedName, err)
	}
	state, err := r.observe(ctx, hubObject)
	if err != nil {
		return ctrl.Result{}, err
	}
	if state.tooEarly() {
		return ctrl.Result{}, nil
	}
	before := hubObject.DeepCopyObject().(fleet.Object)
	wave := report(r.Kind, hubObject, state, r.Clock.Now())
	if equality.Semantic.DeepEqual(before, hubObject) {
		r.Pace.Settled(req.String())
		return ctrl.Result{RequeueAfter: wave.Recheck}, nil
	}
	if wait := r.Pace.Wait(req.String(), transition(r.Kind, before, hubObject)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	r.Pace.Wrote(req.String())
	// What is said must not depend on the patch's answer, which overwrites the object.
	after := hubObject.DeepCopyObject().(fleet.Object)
	if err := r.Hub.Status().Patch(ctx, hubObject, client.MergeFrom(before), FieldOwner); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("writing the status of %s %q: %w", r.Kind.Name, req.NamespacedName, err)
	}
	r.sayTransitions(before, after)
	return ctrl.Result{RequeueAfter: wave.Recheck}, nil
}

// observe reads the hub object's clusters from the members' caches.
func (r *Reconciler) observe(ctx context.Context, hubObject fleet.Object) (state, error) {
	members, err := r.members(ctx)
	if err != nil {
		return state{}, err
	}
	placedIn := hubObject.GetFleetStatus().PlacedIn
	observed := state{omitted: hubObject.GetFleetStatus().ClustersOmitted}
	var chosen []string
	if hubObject.GetDeletionTimestamp() == nil {
		chosen, observed.invalid = fleet.Choose(hubObject.GetPlacement(), hubObject.GetNamespace(), members, placedIn)
	}
	specs, specsError := fleet.NewSpecs(r.Kind.Kind, hubObject)
	if specsError == nil {
		observed.template, specsError = specs.Template()
	}
	observed.chosen = len(chosen)
	previous := entriesByName(r.Kind, hubObject)
	key := fleet.ObjectKey{Kind: r.Kind.Name, Object: client.ObjectKeyFromObject(hubObject)}
	for _, name := range union(chosen, placedIn) {
		seen := cluster{placed: contains(placedIn, name)}
		seen.Observation = fleet.Observation{Name: name, Outcome: r.Table.Get(key, name), Previous: previous[name], WantError: specsError}
		if member, registered := fleet.Find(members, name); registered {
			seen.Member = &member
			if member.Visible {
				r.read(ctx, key, &seen)
			}
		}
		if specsError == nil {
			seen.Want, seen.WantError = specs.For(name, seen.labels())
		}
		seen.Fate = seen.fate(hubObject, contains(chosen, name), observed.invalid != nil)
		observed.clusters = append(observed.clusters, seen)
	}
	return observed, nil
}

// read fills in the member's copy, from its cache. When the cache cannot tell, the member is not visible for this object.
func (r *Reconciler) read(ctx context.Context, key fleet.ObjectKey, seen *cluster) {
	member, err := r.Members.Member(clusterName(seen.Name))
	if err == nil {
		found := r.Kind.New()
		if err = member.GetClient().Get(ctx, key.Object, found); err == nil && fleet.IsOurs(found, r.HubID) {
			seen.object = found
			seen.Copy = fleet.CopyOf(r.Kind.Kind, found)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		seen.Member.Visible = false
		seen.Member.Reason, seen.Member.Message = flotillav1.ReasonClusterNotReady, notConnected
	}
}
