// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/roster"
)

// FieldOwner is the field manager of everything that placement writes.
const FieldOwner = client.FieldOwner(fleet.PlacementManager)

const (
	// conflictDelay gives the cache time to receive the conflicting write.
	conflictDelay = 200 * time.Millisecond
	// terminatingDelay is the interval for checking a namespace that is being deleted. Namespaces are not watched.
	terminatingDelay = 5 * time.Second
	// kindKept is how long the confirmation that a kind is not being removed is valid for an object that is being deleted.
	kindKept = 10 * time.Second
)

// Options are the settings of an administrator.
type Options struct {
	// HubID marks the copies of this hub.
	HubID string
	// AllowedNamespaces are patterns, as for path.Match, of system namespaces into which copies may be placed.
	AllowedNamespaces []string
	// CreateNamespaces creates namespaces that a member lacks.
	CreateNamespaces bool
	// CopyMetadata are prefixes of the label and annotation keys that copies get from the hub object.
	CopyMetadata []string
	// Removals limits the deletion of copies, over all kinds; nil means no limit.
	Removals *fleet.Removals
}

// Reconciler places the objects of one kind.
type Reconciler struct {
	Kind fleet.Kind
	// Hub reads from the hub's cache; HubReader reads live.
	Hub       client.Client
	HubReader client.Reader
	Members   clusters.Directory
	Table     *fleet.Table
	Events    events.EventRecorder
	Clock     clock.PassiveClock
	Options   Options

	// specs caches the Specs of hub objects, and index maps a change of a member to hub objects.
	specs  fleet.SpecCache
	index  index
	fights fights
	memory memory
	// written are the versions of the hub objects that this reconciler wrote last.
	written fleet.Versions
	asking  singleflight.Group
	kept    keptSpecs
	log     removalLog
}

// Reconcile runs a hub pass, or a copy pass if the request names a cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req clusters.Request) (ctrl.Result, error) {
	hubObject := r.Kind.New()
	// Copy passes do not modify the object, and there is one for each copy, so it is not deep-copied.
	shared := client.UnsafeDisableDeepCopyOption(req.ClusterName != "")
	if err := r.Hub.Get(ctx, req.NamespacedName, hubObject, shared); err != nil {
		if apierrors.IsNotFound(err) {
			// A missing object removes nothing: its deletion was processed with the finalizer.
			key := fleet.ObjectKey{Kind: r.Kind.Name, Object: req.NamespacedName}
			r.Table.Forget(key)
			r.Table.Slots.Forget(key)
			r.specs.Forget(key)
			r.fights.forget(key)
			r.memory.forget(key)
			r.written.Forget(key)
			r.kept.forget(key)
			r.index.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading %s %q on the hub: %w", r.Kind.Name, req.NamespacedName, err)
	}
	var delay time.Duration
	var err error
	if r.written.Predates(r.key(hubObject), hubObject) {
		// The watch triggers another pass when the cache is current, unless the change does not matter to a pass.
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	if req.ClusterName == "" {
		r.index.set(hubObject)
		delay, err = r.reconcileHub(ctx, hubObject)
	} else {
		delay, err = r.reconcileCopy(clusters.CausedBy(ctx, hubObject), hubObject, req.ClusterName)
	}
	if fleet.Outdated(err) || errors.Is(err, errOutdated) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: delay}, err
}

func (r *Reconciler) roster() roster.Roster {
	return roster.Roster{Kind: r.Kind.Name, Hub: r.Hub, Members: r.Members}
}

// released reports whether the kind itself is being removed from the hub. Its objects are then deleted by the API
// server and not by a person, so their copies stay. A negative answer that was given after the deletion of the object
// was observed stays valid, because the kind outlived the deletion. It is renewed from time to time all the same, so
// that an object whose deletion waits for something does not block the removal of the kind.
func (r *Reconciler) released(ctx context.Context, hubObject fleet.Object) (bool, error) {
	key, uid := r.key(hubObject), hubObject.GetUID()
	if r.memory.keepsKind(key, uid, r.Clock.Now(), kindKept) {
		return false, nil
	}
	// Concurrent passes of an object share one request: all of them have observed its deletion.
	released, err, _ := r.asking.Do(string(uid), func() (any, error) {
		removed, err := r.kindRemoved(ctx)
		if err == nil && !removed {
			r.memory.keptKind(key, uid, r.Clock.Now())
		}
		return removed, err
	})
	return err == nil && released.(bool), err
}

func (r *Reconciler) kindRemoved(ctx context.Context) (bool, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := r.HubReader.Get(ctx, client.ObjectKey{Name: r.Kind.CRD}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("reading CustomResourceDefinition %q on the hub: %w", r.Kind.CRD, err)
	}
	return crd.DeletionTimestamp != nil, nil
}

// mayBePlaced reports whether the record of the hub object allows writes to a member.
func mayBePlaced(hubObject fleet.Object, clusterName multicluster.ClusterName) bool {
	placedIn := hubObject.GetFleetStatus().PlacedIn
	_, found := slices.BinarySearch(placedIn, string(clusterName))
	// An unsorted record was written by someone else.
	return (found || slices.Contains(placedIn, string(clusterName))) &&
		slices.Contains(hubObject.GetFinalizers(), flotillav1.FinalizerPlacement)
}

func (r *Reconciler) key(hubObject fleet.Object) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: r.Kind.Name, Object: client.ObjectKeyFromObject(hubObject)}
}
