// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// revise records the present spec of a hub object as a revision, so that a person can go back to it, and returns the name
// for its status. Nothing is read or written if that is recorded already. A hub that refuses revisions delays no change.
func (r *Reconciler) revise(ctx context.Context, hubObject fleet.Object) (string, error) {
	recorded := hubObject.GetFleetStatus().Revision
	if hubObject.GetDeletionTimestamp() != nil || hubObject.GetPlacement() == nil {
		return recorded, nil
	}
	specs, err := r.specs.Of(r.Kind, hubObject)
	if err != nil {
		return recorded, nil //nolint:nilerr // An invalid spec goes nowhere, and roll-up reports it.
	}
	template, err := specs.Template()
	if err != nil {
		return "", err
	}
	name, err := fleet.RevisionName(r.Kind, hubObject, template)
	key, uid := r.key(hubObject), hubObject.GetUID()
	if err != nil || name == recorded || r.memory.revision(key, uid) == name {
		return name, err
	}
	if r.memory.revisionRefused(key, uid, r.Clock.Now(), refusedDelay) {
		return recorded, nil
	}
	err = r.addRevision(ctx, hubObject, name)
	switch {
	case fleet.Refused(err), apierrors.IsNotFound(err):
		r.memory.refuseRevision(key, uid, r.Clock.Now())
		logf.FromContext(ctx).Error(err, "Recording the revision of an object")
		return recorded, nil
	case err != nil:
		return "", err
	}
	r.memory.revised(key, uid, name)
	return name, nil
}

// addRevision makes a revision the newest one. Its number is the generation of the hub object.
func (r *Reconciler) addRevision(ctx context.Context, hubObject fleet.Object, name string) error {
	revision, err := fleet.NewRevision(r.Kind, hubObject, name)
	if err != nil {
		return err
	}
	err = r.Hub.Create(ctx, revision.DeepCopy(), FieldOwner)
	if apierrors.IsAlreadyExists(err) {
		// The object goes back to this spec.
		patch := fmt.Appendf(nil, `{"revision":%d}`, revision.Revision)
		err = r.Hub.Patch(ctx, revision, client.RawPatch(types.MergePatchType, patch), FieldOwner)
	}
	if err != nil {
		return fmt.Errorf("recording revision %q: %w", name, err)
	}
	return nil
}

// pruneRevisions deletes the oldest revisions of an object, after a new one was recorded.
func (r *Reconciler) pruneRevisions(ctx context.Context, hubObject fleet.Object) error {
	var list appsv1.ControllerRevisionList
	if err := r.HubReader.List(ctx, &list, client.InNamespace(fleet.RevisionNamespace(hubObject)), client.MatchingLabels(fleet.RevisionLabels(hubObject))); err != nil {
		return fmt.Errorf("listing the revisions of %s %q: %w", r.Kind.Name, client.ObjectKeyFromObject(hubObject), err)
	}
	fleet.SortRevisions(list.Items)
	r.memory.counted(r.key(hubObject), hubObject.GetUID(), min(len(list.Items), fleet.MaxRevisions))
	for i := fleet.MaxRevisions; i < len(list.Items); i++ {
		if err := r.Hub.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting revision %q: %w", list.Items[i].Name, err)
		}
	}
	return nil
}
