// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// remove deletes the copy, or orphans it. found is a copy of this hub.
func (p *copyPass) remove(ctx context.Context, found fleet.Object) (time.Duration, error) {
	p.madeIn, p.lostAt = "", time.Time{}
	unwanted, err := p.stillUnwanted(ctx, found)
	if err != nil {
		return 0, err
	}
	if !unwanted {
		return conflictDelay, nil
	}
	if orphans(p.hubObject, found.GetAnnotations()) {
		before := found.DeepCopyObject().(fleet.Object)
		annotations := found.GetAnnotations()
		for _, key := range []string{
			flotillav1.AnnotationHub, flotillav1.AnnotationPlacedFrom, flotillav1.AnnotationHubUID,
			flotillav1.AnnotationHubGeneration, flotillav1.AnnotationSpecHash, flotillav1.AnnotationDeletionPolicy,
			flotillav1.AnnotationRollout, flotillav1.AnnotationPreviousSpecHash, flotillav1.AnnotationSpecChangedAt,
			flotillav1.AnnotationReadyBefore, flotillav1.AnnotationUnreadyNodesBefore,
			flotillav1.AnnotationClusterLabels, flotillav1.AnnotationLeftToMember,
		} {
			delete(annotations, key)
		}
		found.SetAnnotations(annotations)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := p.member.GetClient().Patch(ctx, found, patch, FieldOwner); client.IgnoreNotFound(err) != nil {
			return p.failed(fmt.Errorf("orphaning the copy: %w", err))
		}
		p.report(fleet.Outcome{Gone: true})
		return 0, nil
	}
	if found.GetDeletionTimestamp() != nil {
		// The finalizers are being processed; the watch triggers another pass when the copy is gone.
		p.report(fleet.Outcome{Deleted: p.Table.Get(p.key, p.name).Deleted})
		return 0, nil
	}
	allowed, err := p.mayRemove(ctx, found)
	if err != nil {
		return 0, err
	}
	if !allowed {
		// The confirmation is watched. Roll-up reports all clusters in one condition.
		p.report(fleet.Outcome{Reason: flotillav1.ReasonRemovalHeld})
		return 0, nil
	}
	p.report(fleet.Outcome{})
	uid, version := found.GetUID(), found.GetResourceVersion()
	err = p.member.GetClient().Delete(ctx, found, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return p.failed(fmt.Errorf("deleting the copy: %w", err))
	}
	if err == nil {
		p.report(fleet.Outcome{Deleted: p.incarnation})
	}
	return 0, nil
}

// stillUnwanted reports whether a live read of the hub object agrees with the cache, because a removal cannot be
// undone. An object that is being deleted needs no second look: that cannot be undone either.
func (p *copyPass) stillUnwanted(ctx context.Context, found fleet.Object) (bool, error) {
	if p.hubObject.GetDeletionTimestamp() != nil {
		return true, nil
	}
	live := p.Kind.New()
	if err := p.HubReader.Get(ctx, p.key.Object, live); err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("reading %s %q on the hub: %w", p.Kind.Name, p.key.Object, err))
	}
	choice, err := fleet.NewChoice(live.GetPlacement(), live.GetNamespace())
	if err != nil || live.GetUID() != p.hubObject.GetUID() {
		return false, nil //nolint:nilerr // The placement cannot be understood any more: nothing is removed.
	}
	chosen := live.GetDeletionTimestamp() == nil && choice.Takes(p.info, true)
	return fleet.FateOf(live, p.name, &p.info, chosen, found.GetAnnotations()) == fleet.FateRemove, nil
}
