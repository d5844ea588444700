// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/statuspatch"
)

const (
	// pendingInterval is how often a pool with unfinished nodes is reconciled. Changes of nodes trigger it as well, but a
	// patch that fails is no event.
	pendingInterval = 5 * time.Second
	// foreignInterval is how often a RuntimeClass that the pool does not own is checked, because it is not cached.
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
	if wait := r.Ledger.paces.begin(at, pass{r.Clock.Now(), pool.UID, pool.Generation, deleting}); wait > 0 {
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

// observe surveys the nodes for the pool.
func (r *PoolReconciler) observe(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool) (ownership.Survey, error) {
	pools, nodes := &flotillav1.NodePoolList{}, &corev1.NodeList{}
	if err := member.GetClient().List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return ownership.Survey{}, fmt.Errorf("listing NodePools: %w", err)
	}
	if err := member.GetClient().List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return ownership.Survey{}, fmt.Errorf("listing nodes: %w", err)
	}
	var usage *ownership.Usage
	if reportsUsage(pool) && pool.DeletionTimestamp.IsZero() {
		usage = new(r.usage(ctx, member, at.cluster))
	}
	now := r.Clock.Now()
	return ownership.SurveyNodes(ownership.SurveyInput{
		Pool: pool, Views: ownership.Views(pools.Items), Nodes: nodes.Items, Now: now, Usage: usage,
		Failure: func(node string) ownership.Failure { return r.Ledger.failures.get(nodeKey{at.cluster, node}) },
		Fought: func(node *corev1.Node, k ownership.Key) bool {
			return r.Ledger.fights.ongoing(rewrite{nodeKey{at.cluster, node.Name}, node.UID, k}, now)
		},
	}), nil
}

// apply brings the finalizer and the RuntimeClass to what the pool needs and writes the status.
func (r *PoolReconciler) apply(ctx context.Context, member cluster.Cluster, at poolKey, pool *flotillav1.NodePool, found ownership.Survey) (reconcile.Result, error) {
	if !ownership.ReadOnly(pool) {
		if err := setFinalizer(ctx, member, pool, found.Counts.NodeCount > 0 || found.Carriers > 0); err != nil {
			return reconcile.Result{}, err
		}
	}
	class := ensureRuntimeClass(ctx, member, pool, found.RoleValues)
	if apierrors.IsConflict(class.err) {
		// Conflicts are retried and not reported.
		return reconcile.Result{}, class.err
	}
	now := r.Clock.Now()
	after := pool.DeepCopy()
	report(after, found, class, now)
	if err := r.writeStatus(ctx, member, at, pool, after, now); err != nil {
		return reconcile.Result{}, err
	}
	r.recordTransitions(at, pool, after)
	for _, event := range append(class.events, r.Ledger.news.remove(at).events()...) {
		r.Recorder.Record(at.cluster, after, event)
	}
	result := reconcile.Result{}
	switch {
	case len(found.Pending) > 0:
		result.RequeueAfter = pendingInterval
	case found.Usage != nil && found.Usage.At.IsZero():
		// Another pass is reading the Pods.
		result.RequeueAfter = lagInterval
	case found.Usage != nil:
		result.RequeueAfter = usageInterval
	case class.condition.Reason == flotillav1.ReasonNameConflict:
		result.RequeueAfter = foreignInterval
	}
	return result, class.err
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

// writeStatus patches the status if it has changed, and not too often if only progress has.
func (r *PoolReconciler) writeStatus(ctx context.Context, member cluster.Cluster, at poolKey, before, after *flotillav1.NodePool, now time.Time) error {
	// Fields that the member's schema lacks would appear to be missing in every pass.
	snapshot, _ := r.Members.Snapshot(at.cluster)
	status, err := clusters.Storable(snapshot, kindNodePool, after.Status)
	if err != nil {
		return err
	}
	after.Status = status
	if onlyProgress(before, after) && now.Sub(r.Ledger.paces.writes.get(at)) < progressInterval {
		return nil
	}
	if !equality.Semantic.DeepEqual(before.Status, after.Status) {
		published := client.Object(before)
		if before.Status.ObservedGeneration <= 0 {
			// The first patch is the full status, so that an empty pool shows zeros.
			published = &metav1.PartialObjectMetadata{ObjectMeta: before.ObjectMeta}
		}
		// The UID keeps the status, and the authority in it, from a pool that was created again under the name.
		if err := statuspatch.Write(ctx, member.GetClient(), published, after, statuspatch.SameUID, fieldOwner); err != nil {
			return fmt.Errorf("writing the status of NodePool %q: %w", before.Name, err)
		}
	}
	r.Ledger.paces.writes.set(at, now)
	return nil
}

// becameFalse returns a condition that is False for another reason than before, and nil otherwise.
func becameFalse(before, after *flotillav1.NodePool, conditionType string) *metav1.Condition {
	was := apimeta.FindStatusCondition(before.Status.Conditions, conditionType)
	is := apimeta.FindStatusCondition(after.Status.Conditions, conditionType)
	if is == nil || is.Status != metav1.ConditionFalse || was != nil && was.Reason == is.Reason {
		return nil
	}
	return is
}

// recordTransitions records warnings for conditions that became False for reasons that need attention.
func (r *PoolReconciler) recordTransitions(at poolKey, before, after *flotillav1.NodePool) {
	became := func(conditionType string, reasons ...string) {
		if is := becameFalse(before, after, conditionType); is != nil && slices.Contains(reasons, is.Reason) {
			r.Recorder.Record(at.cluster, after, warning(is.Reason, "Apply", is.Message))
		}
	}
	became(flotillav1.ConditionNoConflicts, flotillav1.ReasonKeyConflict)
	became(flotillav1.ConditionApplied, flotillav1.ReasonOwnershipFight, flotillav1.ReasonMembershipLoop, flotillav1.ReasonRecordTooLarge,
		flotillav1.ReasonApplyFailed, flotillav1.ReasonForbidden, flotillav1.ReasonRolloutHalted)
	became(flotillav1.ConditionNodesHealthy, flotillav1.ReasonNodesNotReady)
	became(flotillav1.ConditionRuntimeClassReady, flotillav1.ReasonNameConflict, flotillav1.ReasonSelectorNotExact,
		flotillav1.ReasonApplyFailed, flotillav1.ReasonForbidden)
}
