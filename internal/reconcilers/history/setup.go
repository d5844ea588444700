// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// passTimeout ends a pass that hangs.
const passTimeout = time.Minute

// ownerIndex is an index of the hub's cache: the UID of the hub object whose spec a revision keeps.
const ownerIndex = "revisionOf"

// Cached selects the revisions of hub objects for the hub's cache, without the specs that they keep.
func Cached() (cache.ByObject, error) {
	ours, err := labels.NewRequirement(flotillav1.LabelRevisionOf, selection.Exists, nil)
	if err != nil {
		return cache.ByObject{}, fmt.Errorf("selecting revisions: %w", err)
	}
	return cache.ByObject{Label: labels.NewSelector().Add(*ours), Transform: func(o any) (any, error) {
		if revision, ok := o.(*appsv1.ControllerRevision); ok {
			revision.Data.Raw = nil
			revision.ManagedFields = nil
		}
		return o, nil
	}}, nil
}

// Setup adds a controller for each kind to the manager, whose cache has to select revisions as Cached does.
func Setup(hub ctrl.Manager) error {
	if err := addIndex(hub); err != nil {
		return err
	}
	later := handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}, settle)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}, settle)
		},
	}
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		// It has one worker, because a change of everything must not compete with its own history.
		err := ctrl.NewControllerManagedBy(hub).Named("history-"+strings.ToLower(kind.Name)).
			Watches(kind.New(), later, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			WithOptions(controller.Options{ReconciliationTimeout: passTimeout}).
			Complete(&Reconciler{Kind: kind, Hub: hub.GetClient()})
		if err != nil {
			return fmt.Errorf("setting up the history of %s: %w", kind.Name, err)
		}
	}
	return nil
}

func addIndex(hub ctrl.Manager) error {
	ownerOf := func(revision client.Object) []string {
		return []string{revision.GetLabels()[flotillav1.LabelRevisionOf]}
	}
	// The cache has not started, so nothing waits here.
	if err := hub.GetFieldIndexer().IndexField(context.Background(), &appsv1.ControllerRevision{}, ownerIndex, ownerOf); err != nil {
		return fmt.Errorf("indexing revisions: %w", err)
	}
	return nil
}
