// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

const (
	// pendingInterval is how often a pool with unfinished nodes is looked at, besides being told when a node changes: a
	// patch that fails is no event.
	pendingInterval = 5 * time.Second
	// foreignInterval is how often a RuntimeClass that is not ours is looked at: it is not in the cache.
	foreignInterval = time.Minute
)

// PoolReconciler writes the status, the RuntimeClass and the finalizer of NodePools. Requests name a NodePool.
type PoolReconciler struct {
	Members  clusters.Directory
	Recorder clusters.Recorder
	Clock    clock.PassiveClock
	// Ledger is shared with the NodeReconciler.
	Ledger *Ledger
}

// Reconcile implements reconcile.TypedReconciler.
func (r *PoolReconciler) Reconcile(ctx context.Context, req clusters.Request) (reconcile.Result, error) {
	member, err := writableMember(r.Members, req.ClusterName)
	if err != nil || member == nil {
		return reconcile.Result{}, err
	}
	at := poolKey{req.ClusterName, req.Name}
	pool := &flotillav1.NodePool{}
	if err := member.GetClient().Get(ctx, req.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.Ledger.forgetPool(at)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ctx = clusters.CausedBy(ctx, pool)
	deleting := !pool.DeletionTimestamp.IsZero()
	if wait := r.Ledger.begin(at, pass{r.Clock.Now(), pool.UID, pool.Generation, deleting}); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	found, err := r.observe(ctx, member, at, pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	if deleting {
		result, err = r.finalize(ctx, member, at, pool, found)
	} else {
		result, err = r.apply(ctx, member, at, pool, found)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, client.IgnoreNotFound(err)
}

// observe counts the pool's nodes.
func (r *PoolReconciler) observe(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool) (census, error) {
	pools, nodes := &flotillav1.NodePoolList{}, &corev1.NodeList{}
	if err := member.GetClient().List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return census{}, fmt.Errorf("listing NodePools: %w", err)
	}
	if err := member.GetClient().List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return census{}, fmt.Errorf("listing nodes: %w", err)
	}
	var asked usage
	if wantsUsage(pool) && pool.DeletionTimestamp.IsZero() {
		asked = r.usage(ctx, member, at.cluster)
	}
	now := r.Clock.Now()
	return survey(surveyInput{
		pool: pool, views: viewsOf(pools.Items), nodes: nodes.Items, now: now, usage: asked,
		failure: func(node string) failure { return r.Ledger.failure(nodeKey{at.cluster, node}) },
		fought: func(node *corev1.Node, k key) bool {
			return r.Ledger.fought(nodeKey{at.cluster, node.Name}, node.UID, k, now)
		},
	}), nil
}

// apply brings the finalizer and the RuntimeClass to what the pool needs and writes the status.
func (r *PoolReconciler) apply(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool, found census) (reconcile.Result, error) {
	needed := found.counts.NodeCount > 0 || found.carriers > 0
	if !isHeld(pool) {
		if err := setFinalizer(ctx, member, pool, needed); err != nil {
			return reconcile.Result{}, err
		}
	}
	class := r.ensureRuntimeClass(ctx, member, pool, found.roleValues)
	if apierrors.IsConflict(class.err) {
		// A lost race is no news.
		return reconcile.Result{}, class.err
	}
	now := r.Clock.Now()
	after := pool.DeepCopy()
	report(after, found, class, now)
	if err := r.keepStorable(at, after); err != nil {
		return reconcile.Result{}, err
	}
	if !onlyProgress(pool, after) || !r.Ledger.wroteWithin(at, progressInterval, now) {
		if err := writeStatus(ctx, member, pool, after); err != nil {
			return reconcile.Result{}, err
		}
		r.Ledger.setWrote(at, now)
	}
	r.tell(at, pool, after)
	for _, event := range append(class.events, r.Ledger.takeNews(at).events()...) {
		r.Recorder.Record(at.cluster, after, event)
	}
	result := reconcile.Result{}
	switch {
	case len(found.pending) > 0:
		result.RequeueAfter = pendingInterval
	case wantsUsage(pool) && found.usage.at.IsZero():
		// Another pass is reading the Pods.
		result.RequeueAfter = lagInterval
	case wantsUsage(pool):
		result.RequeueAfter = usageInterval
	case class.reason == flotillav1.ReasonNameConflict:
		result.RequeueAfter = foreignInterval
	}
	return result, class.err
}

// keepStorable leaves out what the member's schema does not know, which would be found missing in every pass.
func (r *PoolReconciler) keepStorable(at poolKey, pool *flotillav1.NodePool) error {
	snapshot, _ := r.Members.Snapshot(at.cluster)
	status, err := clusters.Storable(snapshot, kindNodePool, pool.Status)
	pool.Status = status
	return err
}

// setFinalizer adds or removes the finalizer. The pool in memory stays what was observed.
func setFinalizer(ctx context.Context, member cluster.Cluster, pool *flotillav1.NodePool, needed bool) error {
	if controllerutil.ContainsFinalizer(pool, flotillav1.FinalizerNodePool) == needed {
		return nil
	}
	changed := pool.DeepCopy()
	if needed {
		controllerutil.AddFinalizer(changed, flotillav1.FinalizerNodePool)
	} else {
		controllerutil.RemoveFinalizer(changed, flotillav1.FinalizerNodePool)
	}
	// The list of finalizers has other writers.
	patch := client.MergeFromWithOptions(pool.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := member.GetClient().Patch(ctx, changed, patch, fieldOwner); err != nil {
		return fmt.Errorf("setting the finalizer of NodePool %q: %w", pool.Name, err)
	}
	return nil
}

// writeStatus patches what changed. The first write is a full one, so that an empty pool shows zeros and not nothing.
// The UID keeps a status, and the authority in it, from a pool that was created again under the name.
func writeStatus(ctx context.Context, member cluster.Cluster, before, after *flotillav1.NodePool) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	patch := map[string]any{}
	if before.Status.ObservedGeneration <= 0 {
		patch["status"] = after.Status
	} else {
		data, err := client.MergeFrom(before).Data(after)
		if err != nil {
			return fmt.Errorf("comparing the status of NodePool %q: %w", before.Name, err)
		}
		if err := json.Unmarshal(data, &patch); err != nil {
			return fmt.Errorf("comparing the status of NodePool %q: %w", before.Name, err)
		}
	}
	patch["metadata"] = map[string]any{"uid": before.UID}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding the status of NodePool %q: %w", before.Name, err)
	}
	written := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: before.Name}}
	if err := member.GetClient().Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, data), fieldOwner); err != nil {
		return fmt.Errorf("writing the status of NodePool %q: %w", before.Name, err)
	}
	return nil
}

// tell records the transitions that a person should look at.
func (r *PoolReconciler) tell(at poolKey, before, after *flotillav1.NodePool) {
	became := func(conditionType string, reasons ...string) {
		was := apimeta.FindStatusCondition(before.Status.Conditions, conditionType)
		is := apimeta.FindStatusCondition(after.Status.Conditions, conditionType)
		for _, reason := range reasons {
			if is != nil && is.Status == metav1.ConditionFalse && is.Reason == reason && (was == nil || was.Reason != reason) {
				r.Recorder.Record(at.cluster, after, warning(reason, "Apply", is.Message))
			}
		}
	}
	became(flotillav1.ConditionNoConflicts, flotillav1.ReasonKeyConflict)
	became(flotillav1.ConditionApplied, flotillav1.ReasonOwnershipFight, flotillav1.ReasonMembershipLoop, flotillav1.ReasonRecordTooLarge,
		flotillav1.ReasonApplyFailed, flotillav1.ReasonForbidden, flotillav1.ReasonRolloutHalted)
	became(flotillav1.ConditionNodesHealthy, flotillav1.ReasonNodesNotReady)
	became(flotillav1.ConditionRuntimeClassReady, flotillav1.ReasonNameConflict, flotillav1.ReasonSelectorNotExact,
		flotillav1.ReasonApplyFailed, flotillav1.ReasonForbidden)
}
