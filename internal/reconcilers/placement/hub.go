// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
)

// errOutdated is returned instead of a write that would end in a conflict, because roll-up has written since the object was
// read.
var errOutdated = errors.New("the hub object has been written since it was read")

// reconcileHub maintains the record of members that may have a copy, and grants permits. Changes of the record, through
// its watch, and new permits trigger copy passes.
func (r *Reconciler) reconcileHub(ctx context.Context, hubObject fleet.Object) (time.Duration, error) {
	if hubObject.GetDeletionTimestamp() != nil {
		if !slices.Contains(hubObject.GetFinalizers(), flotillav1.FinalizerPlacement) {
			return 0, nil
		}
		released, err := r.released(ctx, hubObject)
		if err != nil {
			return 0, err
		}
		if released {
			logf.FromContext(ctx).Info("Releasing the copies, the kind is being removed from the hub")
			return 0, r.patchMetadata(ctx, hubObject, func(o fleet.Object) { controllerutil.RemoveFinalizer(o, flotillav1.FinalizerPlacement) })
		}
	}
	observed, err := r.observeHub(ctx, hubObject)
	if err != nil {
		return 0, err
	}
	plan := planHub(hubObject, observed)
	if wait := plan.waitsForMore(hubObject, r.Clock.Now()); wait > 0 {
		return wait, nil
	}
	decided := r.lead(ctx, hubObject, observed)
	plan.trials, plan.change = decided.trials, decided.change
	if decided.demote {
		plan.clear = append(plan.clear, flotillav1.AnnotationPromote)
	}
	if err := r.applyHub(ctx, hubObject, plan); err != nil {
		return 0, err
	}
	r.refuseExcess(hubObject, plan.excess)
	r.Table.SetPermits(r.key(hubObject), decided.permits, fleet.TrialsOf(hubObject))
	return decided.recheck, nil
}

func (r *Reconciler) observeHub(ctx context.Context, hubObject fleet.Object) (hubState, error) {
	members, err := r.roster().All(ctx)
	if err != nil {
		return hubState{}, err
	}
	state := hubState{members: members, gone: map[string]bool{}, offboarded: map[string]bool{}, lost: map[string]time.Time{}}
	placedIn := hubObject.GetFleetStatus().PlacedIn
	if hubObject.GetDeletionTimestamp() == nil {
		// An invalid placement changes nothing; roll-up reports it.
		if state.choice, err = fleet.NewChoice(hubObject.GetPlacement(), hubObject.GetNamespace()); err != nil {
			state.invalid = true
		} else {
			state.chosen = state.choice.Choose(members, placedIn)
		}
	}
	for _, name := range placedIn {
		outcome := r.Table.Get(r.key(hubObject), name)
		// An outcome of an earlier generation may have been followed by a write.
		state.gone[name] = outcome.Gone && outcome.Generation == hubObject.GetGeneration()
		if !outcome.LostAt.IsZero() {
			state.lost[name] = outcome.LostAt
		}
		if _, registered := fleet.Find(members, name); registered {
			continue
		}
		if state.offboarded[name], err = r.offboarded(ctx, name); err != nil {
			return hubState{}, err
		}
	}
	state.departing = hubObject.GetFleetStatus().Departing
	if hubObject.GetDeletionTimestamp() == nil && !state.invalid {
		state.departing = fleet.Departures(hubObject, state.choice, placedIn, members, r.labelsCarried(ctx, hubObject))
	}
	state.removing = fleet.RemovalConfirmed(hubObject) && r.removing(ctx, hubObject, state)
	return state, nil
}

// labelsCarried returns a function that reads the labels hash of a copy from the cache of a visible member.
func (r *Reconciler) labelsCarried(ctx context.Context, hubObject fleet.Object) func(fleet.Member) (string, bool) {
	return func(member fleet.Member) (string, bool) {
		if !member.Visible {
			return "", false
		}
		found := r.cached(ctx, r.key(hubObject), member.Name)
		if found == nil {
			return "", false
		}
		return found.GetAnnotations()[flotillav1.AnnotationClusterLabels], true
	}
}

// removing reports whether a copy has to be removed that may still exist.
func (r *Reconciler) removing(ctx context.Context, hubObject fleet.Object, state hubState) bool {
	planned := hubObject.DeepCopyObject().(fleet.Object)
	planned.GetFleetStatus().Departing = state.departing
	return slices.ContainsFunc(hubObject.GetFleetStatus().PlacedIn, func(name string) bool {
		member, registered := fleet.Find(state.members, name)
		if _, chosen := slices.BinarySearch(state.chosen, name); chosen || !registered || state.gone[name] {
			return false
		}
		if !member.Visible {
			return true
		}
		found := r.cached(ctx, r.key(hubObject), name)
		return found != nil && fleet.FateOf(planned, name, &member, false, found.GetAnnotations()) == fleet.FateRemove
	})
}

// offboarded reports whether a name has neither a registration nor a MemberCluster. The publisher removes a
// MemberCluster only after it has observed that its registration is gone.
func (r *Reconciler) offboarded(ctx context.Context, name string) (bool, error) {
	err := r.HubReader.Get(ctx, client.ObjectKey{Name: name}, &flotillav1.MemberCluster{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading MemberCluster %q on the hub: %w", name, err)
	}
	return false, nil
}

// applyHub writes the finalizer before the record, and the record before anything that ends it.
func (r *Reconciler) applyHub(ctx context.Context, hubObject fleet.Object, plan hubPlan) error {
	if plan.addFinalizer {
		if err := r.patchMetadata(ctx, hubObject, func(o fleet.Object) { controllerutil.AddFinalizer(o, flotillav1.FinalizerPlacement) }); err != nil {
			return err
		}
	}
	// Before the record loses a name: after a crash nothing else would know about the copy.
	if err := r.recordOrphans(ctx, hubObject, plan.orphaned); err != nil {
		return err
	}
	if !plan.recorded(hubObject.GetFleetStatus()) {
		if plan.removeFinalizer && len(hubObject.GetFinalizers()) == 1 && hubObject.GetDeletionTimestamp() != nil {
			// The record is deleted with the object.
			r.sayLeft(hubObject, plan)
			return r.tidyHub(ctx, hubObject, plan)
		}
		if r.Table.RolledUp.Predates(r.key(hubObject), hubObject) {
			return errOutdated
		}
		before := hubObject.DeepCopyObject().(fleet.Object)
		status := hubObject.GetFleetStatus()
		r.expectNoCopy(hubObject, plan.placedIn)
		status.PlacedIn, status.Choice, status.Departing, status.Recreated = plan.placedIn, plan.choice, plan.departing, plan.recreated
		status.Trials, status.Change = plan.trials, plan.change
		if err := statuspatch.Write(ctx, r.Hub, before, hubObject, statuspatch.SameVersion, FieldOwner); err != nil {
			return fmt.Errorf("recording where %s %q is placed: %w", r.Kind.Name, client.ObjectKeyFromObject(hubObject), err)
		}
		r.written.Wrote(r.key(hubObject), hubObject)
		if !fleet.SameTrials(before.GetFleetStatus().Trials, status.Trials) {
			r.memory.recordedTrials(r.key(hubObject), hubObject.GetUID())
		}
		r.sayReverted(before, hubObject)
		r.sayLeft(hubObject, plan)
		r.sayRecreated(hubObject, plan.newlyRecreated)
		if left := slices.Concat(plan.removed, plan.releasedNames, plan.offboarded); len(left) > 0 {
			r.Table.Forget(r.key(hubObject), left...)
		}
	}
	return r.tidyHub(ctx, hubObject, plan)
}

// tidyHub removes annotations that have been processed and, in the end, the finalizer.
func (r *Reconciler) tidyHub(ctx context.Context, hubObject fleet.Object, plan hubPlan) error {
	if !plan.removeFinalizer && len(plan.clear) == 0 && plan.confirmLeave == nil {
		return nil
	}
	return r.patchMetadata(ctx, hubObject, func(o fleet.Object) {
		annotations := o.GetAnnotations()
		for _, key := range plan.clear {
			delete(annotations, key)
		}
		if plan.confirmLeave != nil {
			delete(annotations, flotillav1.AnnotationConfirmLeave)
			if len(plan.confirmLeave) > 0 {
				annotations[flotillav1.AnnotationConfirmLeave] = strings.Join(plan.confirmLeave, ",")
			}
		}
		o.SetAnnotations(annotations)
		if plan.removeFinalizer {
			controllerutil.RemoveFinalizer(o, flotillav1.FinalizerPlacement)
		}
	})
}

// patchMetadata changes the metadata of a hub object under an optimistic lock, because others write finalizers too.
func (r *Reconciler) patchMetadata(ctx context.Context, hubObject fleet.Object, change func(fleet.Object)) error {
	before := hubObject.DeepCopyObject().(fleet.Object)
	change(hubObject)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Patch(ctx, hubObject, patch, FieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching %s %q on the hub: %w", r.Kind.Name, client.ObjectKeyFromObject(hubObject), err)
	}
	r.written.Wrote(r.key(hubObject), hubObject)
	return nil
}
