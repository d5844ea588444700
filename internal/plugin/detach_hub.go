// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// detachHub takes from the objects of a hub what only a manager would take off. Copies are in members, and are not asked.
func (t *tool) detachHub(ctx context.Context, yes, force bool) error {
	hub, err := t.hub()
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	err = hub.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: managerLease}, lease)
	if client.IgnoreNotFound(err) != nil {
		return hub.explain("reading the Lease of the manager", err)
	}
	if _, alive := t.claimant(lease); alive && !force {
		return faultf("a manager that is there lets go of objects by itself; --force detaches nevertheless, and it will take them up again",
			"the manager is not gone: it renewed its Lease %s ago", t.ago(&metav1.Time{Time: lease.Spec.RenewTime.Time}))
	}
	var held []fleet.Object
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		err := eachPage(ctx, hub, kind.NewList(), func(list client.ObjectList) {
			for _, object := range kind.Items(list.(fleet.ObjectList)) {
				if controllerutil.ContainsFinalizer(object, flotillav1.FinalizerPlacement) {
					held = append(held, object)
				}
			}
		})
		if err != nil && !apimeta.IsNoMatchError(err) {
			return hub.explain("listing objects of kind "+kind.Name, err)
		}
	}
	if len(held) == 0 {
		t.tell("No object of the hub waits for a manager.")
		return nil
	}
	t.printHeld(held)
	if !yes && !t.ask(bufio.NewReader(t.In), "Remove all this? The copies stay.") {
		return faultf("answer y, or pass --yes", "nothing was changed")
	}
	if err := t.stage(ctx, "detach", func(ctx context.Context, doing func(string)) (string, error) { return letGo(ctx, hub, held, doing) }); err != nil {
		return err
	}
	t.tell("Nothing on the hub waits for a manager any more. Free each member with: kubectl flotilla detach --context MEMBER")
	return nil
}

func (t *tool) printHeld(held []fleet.Object) {
	for _, object := range held {
		note := ""
		if object.GetDeletionTimestamp() != nil {
			note = "; being deleted: it goes at once"
		}
		in := "nowhere"
		if placed := object.GetFleetStatus().PlacedIn; len(placed) > 0 {
			in = text.List(placed, 10)
		}
		t.tell("Finalizer of %s (placed in %s%s)", nameOf(object), in, note)
	}
}

// letGo removes the finalizer of placement.
func letGo(ctx context.Context, hub *site, held []fleet.Object, doing func(string)) (string, error) {
	for _, object := range held {
		doing(nameOf(object))
		before := object.DeepCopyObject().(client.Object)
		controllerutil.RemoveFinalizer(object, flotillav1.FinalizerPlacement)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := hub.Patch(ctx, object, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return "", hub.explain("removing the finalizer of "+nameOf(object), err)
		}
	}
	return fmt.Sprintf("%d %s removed", len(held), plural(len(held), "finalizer")), nil
}
