// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

const (
	// crdName is the CRD of NodePools.
	crdName = "nodepools.flotilla.dev"
	// lagInterval is the pause while the cache lags behind the API server.
	lagInterval = 2 * time.Second
	// livePage is how many objects are read from the API server at once.
	livePage = 500
)

// finalize lets the node controller clean the nodes, and removes the finalizer when that is done.
func (r *PoolReconciler) finalize(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool, found ownership.Survey) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(pool, flotillav1.FinalizerNodePool) {
		return reconcile.Result{}, nil
	}
	mayBeWritten := r.Ledger.inFlight.mayWriteFor(at, pool.UID)
	if found.Carriers > 0 {
		return r.clean(ctx, member, at, pool, found)
	}
	if mayBeWritten {
		// Keys written for a pool that is gone would stay on the node forever.
		return reconcile.Result{RequeueAfter: lagInterval}, nil
	}
	// The cache may lag behind the last patches of the node controller.
	carried, err := isCarried(ctx, member, pool.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if carried {
		return reconcile.Result{RequeueAfter: lagInterval}, nil
	}
	if err := setFinalizer(ctx, member, pool, false); err != nil {
		return reconcile.Result{}, err
	}
	if ownership.Cleaning(pool) {
		r.Recorder.Record(at.cluster, pool, cleanupEvent("CleanupCompleted", "No node carries keys of the pool any more"))
	}
	return reconcile.Result{}, nil
}

// clean allows the node controller to clean the nodes, unless the CRD is being deleted: that deletes every pool without any
// intent to change nodes.
func (r *PoolReconciler) clean(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool, found ownership.Survey) (reconcile.Result, error) {
	if !ownership.Cleaning(pool) {
		terminating, err := crdTerminating(ctx, member)
		if err != nil {
			return reconcile.Result{}, err
		}
		if terminating {
			if err := setFinalizer(ctx, member, pool, false); err != nil {
				return reconcile.Result{}, err
			}
			r.Recorder.Record(at.cluster, pool, warning("Released", "Release",
				fmt.Sprintf("The CRD is being deleted; the keys of the pool stay on %s", nodeCount(found.Carriers))))
			return reconcile.Result{}, nil
		}
	}
	now := r.Clock.Now()
	after := pool.DeepCopy()
	reportDeletion(after, found, now)
	if err := r.writeStatus(ctx, member, at, pool, after, now); err != nil {
		return reconcile.Result{}, err
	}
	if ownership.Cleaning(after) && !ownership.Cleaning(pool) {
		r.Recorder.Record(at.cluster, pool, cleanupEvent("CleanupStarted", "Cleaning up "+nodeCount(found.Carriers)))
	}
	if ready := becameFalse(pool, after, flotillav1.ConditionReady); ready != nil && ready.Reason != flotillav1.ReasonCleaning {
		r.Recorder.Record(at.cluster, after, warning("CleanupBlocked", "Cleanup", ready.Message))
	}
	return reconcile.Result{RequeueAfter: pendingInterval}, nil
}

// crdTerminating reports whether the CRD is being deleted or gone. If it cannot be read, the deletion waits.
func crdTerminating(ctx context.Context, member cluster.Cluster) (bool, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := member.GetAPIReader().Get(ctx, client.ObjectKey{Name: crdName}, crd)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the CRD %q: %w", crdName, err)
	}
	return !crd.DeletionTimestamp.IsZero(), nil
}

// isCarried reports whether the record of any node names the pool, bypassing the cache.
func isCarried(ctx context.Context, member cluster.Cluster, poolName string) (bool, error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	for {
		if err := member.GetAPIReader().List(ctx, nodes, client.Limit(livePage), client.Continue(nodes.Continue)); err != nil {
			return false, fmt.Errorf("listing nodes: %w", err)
		}
		for i := range nodes.Items {
			if slices.Contains(ownership.RecordedPools(&corev1.Node{ObjectMeta: nodes.Items[i].ObjectMeta}), poolName) {
				return true, nil
			}
		}
		if nodes.Continue == "" {
			return false, nil
		}
	}
}
