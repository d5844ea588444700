// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// crdName is the CRD of NodePools.
	crdName = "nodepools.flotilla.dev"
	// lagInterval is the pause when the cache says less than the API server.
	lagInterval = 2 * time.Second
	// livePage is how many nodes are read at once.
	livePage = 500
)

// finalize lets the node controller clean the nodes, and the pool go when that is done.
func (r *PoolReconciler) finalize(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool, found census) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(pool, flotillav1.FinalizerNodePool) {
		return reconcile.Result{}, nil
	}
	underway := r.Ledger.mayBeWrittenFor(at, pool.UID)
	if found.carriers > 0 {
		return r.clean(ctx, member, at, pool, found)
	}
	if underway {
		// A patch for a pool that is gone would stay on its node for ever.
		return reconcile.Result{RequeueAfter: lagInterval}, nil
	}
	// The cache may lag behind the node controller's last patches.
	carriers, err := liveCarriers(ctx, member, pool.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if carriers > 0 {
		return reconcile.Result{RequeueAfter: lagInterval}, nil
	}
	if err := setFinalizer(ctx, member, pool, false); err != nil {
		return reconcile.Result{}, err
	}
	if isCleaning(pool) {
		r.Recorder.Record(at.cluster, pool, cleanup("CleanupCompleted", "No node carries keys of the pool any more"))
	}
	return reconcile.Result{}, nil
}

// clean gives the node controller leave to clean, once the deletion is found to be meant: when the CRD is deleted,
// every pool is, and nobody has asked for the nodes to change.
func (r *PoolReconciler) clean(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool, found census) (reconcile.Result, error) {
	if !isCleaning(pool) {
		terminating, err := crdTerminating(ctx, member)
		if err != nil {
			return reconcile.Result{}, err
		}
		if terminating {
			if err := setFinalizer(ctx, member, pool, false); err != nil {
				return reconcile.Result{}, err
			}
			r.Recorder.Record(at.cluster, pool, warning("Released", "Release",
				fmt.Sprintf("The CRD is being deleted, %s keep what the pool gave them", nodeCount(found.carriers))))
			return reconcile.Result{}, nil
		}
	}
	now := r.Clock.Now()
	after := pool.DeepCopy()
	reportDeletion(after, found, now)
	if err := r.keepStorable(at, after); err != nil {
		return reconcile.Result{}, err
	}
	if !onlyProgress(pool, after) || !r.Ledger.wroteWithin(at, progressInterval, now) {
		if err := writeStatus(ctx, member, pool, after); err != nil {
			return reconcile.Result{}, err
		}
		r.Ledger.setWrote(at, now)
	}
	if isCleaning(after) && !isCleaning(pool) {
		r.Recorder.Record(at.cluster, pool, cleanup("CleanupStarted", fmt.Sprintf("Making %s as before the pool", nodeCount(found.carriers))))
	}
	r.tellBlocked(at, pool, after)
	return reconcile.Result{RequeueAfter: pendingInterval}, nil
}

// tellBlocked records that nodes cannot be cleaned, once.
func (r *PoolReconciler) tellBlocked(at poolKey, before, after *flotillav1.NodePool) {
	was := apimeta.FindStatusCondition(before.Status.Conditions, flotillav1.ConditionReady)
	is := apimeta.FindStatusCondition(after.Status.Conditions, flotillav1.ConditionReady)
	if is.Reason != flotillav1.ReasonCleaning && (was == nil || was.Reason != is.Reason) {
		r.Recorder.Record(at.cluster, after, warning("CleanupBlocked", "Cleanup", is.Message))
	}
}

// crdTerminating reads the CRD live. One that is gone is terminating as well; one that cannot be read is an error, and
// the deletion waits.
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

// liveCarriers counts the nodes whose record names the pool, past the cache.
func liveCarriers(ctx context.Context, member cluster.Cluster, poolName string) (int, error) {
	carriers := 0
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	for {
		if err := member.GetAPIReader().List(ctx, nodes, client.Limit(livePage), client.Continue(nodes.Continue)); err != nil {
			return 0, fmt.Errorf("listing nodes: %w", err)
		}
		for i := range nodes.Items {
			if _, recorded := recordOf(&corev1.Node{ObjectMeta: nodes.Items[i].ObjectMeta})[poolName]; recorded {
				carriers++
			}
		}
		if nodes.Continue == "" {
			return carriers, nil
		}
	}
}
