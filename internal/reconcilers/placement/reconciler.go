// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
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
const FieldOwner = client.FieldOwner("flotilla-placement")

const (
	// conflictDelay lets the cache catch up with the write that came in between.
	conflictDelay = 200 * time.Millisecond
	// terminatingDelay is when it is looked again whether a namespace that is being deleted is gone. Namespaces are not watched.
	terminatingDelay = 5 * time.Second
	// refusedDelay is when a write that a member has refused is tried again: its cause may go without an event that
	// reaches us, such as a quota, a webhook or a role.
	refusedDelay = 5 * time.Minute
	// kindKept is how long the answer of the hub that a kind is not being removed holds for an object that is being deleted.
	kindKept = 10 * time.Second
)

// Options are what an administrator may set.
type Options struct {
	// HubID marks the copies of this hub.
	HubID string
	// AllowedNamespaces are patterns, as for path.Match, of namespaces that copies may be placed into although their
	// names are those of system namespaces.
	AllowedNamespaces []string
	// CreateNamespaces creates namespaces that a member lacks.
	CreateNamespaces bool
	// CopyMetadata are prefixes of the keys of labels and annotations that copies take over.
	CopyMetadata []string
	// Removals is how many copies may be deleted in a while, over all kinds; nil is no limit.
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

	// specs are those of the hub objects, and index says which of them a change of a member is about.
	specs  fleet.SpecCache
	index  index
	fights fights
	memory memory
	asking singleflight.Group
	log    removalLog
}

// Reconcile runs a hub pass, or a copy pass when the request names a cluster.
func (r *Reconciler) Reconcile(ctx context.Context, req clusters.Request) (ctrl.Result, error) {
	hubObject := r.Kind.New()
	// A copy pass changes nothing in it, and there are as many of these as there are copies.
	shared := client.UnsafeDisableDeepCopyOption(req.ClusterName != "")
	if err := r.Hub.Get(ctx, req.NamespacedName, hubObject, shared); err != nil {
		if apierrors.IsNotFound(err) {
			// Absence removes nothing: a deletion that was ours to follow went through the finalizer.
			key := fleet.ObjectKey{Kind: r.Kind.Name, Object: req.NamespacedName}
			r.Table.Forget(key)
			r.specs.Forget(key)
			r.fights.forget(key)
			r.memory.forget(key)
			r.index.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading %s %q on the hub: %w", r.Kind.Name, req.NamespacedName, err)
	}
	var delay time.Duration
	var err error
	if r.memory.predates(r.key(hubObject), hubObject) {
		// The watch tells when the cache has caught up, unless nothing in it is new to a pass.
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	if req.ClusterName == "" {
		r.index.set(hubObject)
		delay, err = r.reconcileHub(ctx, hubObject)
	} else {
		delay, err = r.reconcileCopy(clusters.CausedBy(ctx, hubObject), hubObject, req.ClusterName)
	}
	if outdated(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{RequeueAfter: delay}, err
}

func (r *Reconciler) roster() roster.Roster {
	return roster.Roster{Kind: r.Kind.Name, Hub: r.Hub, Members: r.Members}
}

// released reports whether the kind itself is being removed from the hub. The objects of the kind then go because the API
// server clears up, not because a person deleted them, and their copies stay. An answer that was given after the object
// was seen to be deleted stays true: the kind outlived its deletion. It is asked anew from time to time all the same, so
// that an object whose deletion waits for something does not hold up the removal of the kind.
func (r *Reconciler) released(ctx context.Context, hubObject fleet.Object) (bool, error) {
	key, uid := r.key(hubObject), hubObject.GetUID()
	if r.memory.keepsKind(key, uid, r.Clock.Now(), kindKept) {
		return false, nil
	}
	// The passes over an object ask together: all of them have seen its deletion.
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

// mayBePlaced reports whether the hub object's record allows writing to a member.
func mayBePlaced(hubObject fleet.Object, clusterName multicluster.ClusterName) bool {
	placedIn := hubObject.GetFleetStatus().PlacedIn
	_, found := slices.BinarySearch(placedIn, string(clusterName))
	// A record that is not sorted is one that someone else wrote.
	return (found || slices.Contains(placedIn, string(clusterName))) &&
		slices.Contains(hubObject.GetFinalizers(), flotillav1.FinalizerPlacement)
}

func (r *Reconciler) key(hubObject fleet.Object) fleet.ObjectKey {
	return fleet.ObjectKey{Kind: r.Kind.Name, Object: client.ObjectKeyFromObject(hubObject)}
}
