// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// FieldOwner is the field manager of revisions.
const FieldOwner = client.FieldOwner("flotilla-history")

// settle is how long after a change its spec is recorded: the rollout goes first, and edits in quick succession make one
// revision.
const settle = time.Second

// Reconciler records the specs of the hub objects of one kind.
type Reconciler struct {
	Kind fleet.Kind
	// Hub reads from the hub's cache, in which revisions have the index ownerIndex and no data.
	Hub client.Client
}

// Reconcile makes the revision with the present spec of an object the newest one, and deletes those that are too many.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := r.Kind.New()
	if err := r.Hub.Get(ctx, req.NamespacedName, object, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			// Its revisions are deleted by the garbage collector of the hub.
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading %s %q on the hub: %w", r.Kind.Name, req.NamespacedName, err)
	}
	if object.GetDeletionTimestamp() != nil || object.GetPlacement() == nil {
		return ctrl.Result{}, nil
	}
	specs, err := fleet.NewSpecs(r.Kind, object)
	if err != nil {
		// An invalid spec goes nowhere, so nobody goes back to it. Roll-up reports it.
		return ctrl.Result{}, nil //nolint:nilerr // See above.
	}
	template, err := specs.Template()
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.record(ctx, object, template)
	switch {
	case fleet.Outdated(err):
		// The cache is about to receive what this pass has not seen.
		return ctrl.Result{RequeueAfter: settle}, nil
	case fleet.Refused(err):
		logf.FromContext(ctx).Error(err, "Recording the spec of an object")
		return ctrl.Result{RequeueAfter: fleet.RefusedDelay}, nil
	}
	return ctrl.Result{}, err
}

// record writes nothing if the newest revision has the present spec. The number of a revision is the generation of the
// object when it got the spec, so that the order is right even if a pass works with an old object.
func (r *Reconciler) record(ctx context.Context, object fleet.Object, template string) error {
	name, err := fleet.RevisionName(r.Kind, object, template)
	if err != nil {
		return err
	}
	var list appsv1.ControllerRevisionList
	if err := r.Hub.List(ctx, &list, client.InNamespace(fleet.RevisionNamespace(object)), client.MatchingFields{ownerIndex: string(object.GetUID())}); err != nil {
		return fmt.Errorf("listing the revisions of %s %q: %w", r.Kind.Name, client.ObjectKeyFromObject(object), err)
	}
	fleet.SortRevisions(list.Items)
	known := slices.IndexFunc(list.Items, func(revision appsv1.ControllerRevision) bool { return revision.Name == name })
	switch {
	case known == 0:
	case known > 0:
		// The object goes back to this spec.
		if err := r.renumber(ctx, &list.Items[known], object.GetGeneration()); err != nil {
			return err
		}
	default:
		revision, err := fleet.NewRevision(r.Kind, object, name)
		if err != nil {
			return err
		}
		if err := r.Hub.Create(ctx, revision, FieldOwner); err != nil {
			return fmt.Errorf("creating revision %q: %w", name, err)
		}
		list.Items = slices.Insert(list.Items, 0, *revision)
	}
	for i := fleet.MaxRevisions; i < len(list.Items); i++ {
		if change := fleet.RevertedChange(object); change != nil && change.Revert.Revision == list.Items[i].Name {
			// New copies get it.
			continue
		}
		// One that has got a new number since stays.
		unchanged := client.Preconditions{ResourceVersion: &list.Items[i].ResourceVersion}
		if err := r.Hub.Delete(ctx, &list.Items[i], unchanged); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting revision %q: %w", list.Items[i].Name, err)
		}
	}
	return nil
}

// renumber changes the number of a revision unless it has changed since it was read.
func (r *Reconciler) renumber(ctx context.Context, revision *appsv1.ControllerRevision, number int64) error {
	if revision.Revision >= number {
		return nil
	}
	before := revision.DeepCopy()
	revision.Revision = number
	if err := r.Hub.Patch(ctx, revision, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), FieldOwner); err != nil {
		return fmt.Errorf("giving revision %q the number %d: %w", revision.Name, number, err)
	}
	return nil
}
