// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

const (
	// fieldOwner is the name of our writes in managedFields.
	fieldOwner = client.FieldOwner("flotilla-nodepool")
	// kindNodePool is the kind that a member can be excluded from.
	kindNodePool = "NodePool"
	// turnInterval is how often a node asks whether it may get its NoExecute taints, besides being told when another
	// node of the pool changes: the end of minReadySeconds is no event.
	turnInterval = 10 * time.Second
	// fightInterval is how often a node looks whether a fight is over.
	fightInterval = time.Minute
	// conflictInterval is the pause after five lost races.
	conflictInterval = time.Second
)

// patchBackoff is for lost races: one or two tries are enough in practice.
var patchBackoff = wait.Backoff{Steps: 5, Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.5}

// NodeReconciler makes nodes carry what the NodePools of their member say. Requests name a Node.
type NodeReconciler struct {
	Members clusters.Directory
	Clock   clock.PassiveClock
	// Ledger is shared with the PoolReconciler, which tells the news.
	Ledger *Ledger
	// bell wakes it; nil when nobody waits.
	bell *bell
}

// Reconcile implements reconcile.TypedReconciler.
func (r *NodeReconciler) Reconcile(ctx context.Context, req clusters.Request) (reconcile.Result, error) {
	member, err := writableMember(r.Members, req.ClusterName)
	if err != nil || member == nil {
		r.forgetIfGone(req.ClusterName)
		return reconcile.Result{}, err
	}
	at := nodeKey{req.ClusterName, req.Name}
	// Before the pools are read: a pool that goes waits for the passes that may not know of its deletion.
	defer r.Ledger.working(at)()
	node := &corev1.Node{}
	if err := member.GetClient().Get(ctx, req.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.Ledger.forgetNode(at)
			r.bell.ring(r.Ledger.ended(at, r.Clock.Now())...)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.bell.ring(r.Ledger.saw(at, node)...)
	pools := &flotillav1.NodePoolList{}
	if err := member.GetClient().List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NodePools: %w", err)
	}
	done, err := r.apply(clusters.CausedBy(ctx, node), member, at, node, viewsOf(pools.Items))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	case apierrors.IsNotFound(err):
		r.Ledger.forgetNode(at)
		return reconcile.Result{}, nil
	case err != nil:
		r.Ledger.setFailure(at, failureOf(err))
		return reconcile.Result{}, fmt.Errorf("patching node %q: %w", req.Name, err)
	}
	r.Ledger.setFailure(at, failure{})
	r.note(ctx, at, node, done)
	return reconcile.Result{RequeueAfter: done.again()}, nil
}

// forgetIfGone forgets a member that is not registered any more.
func (r *NodeReconciler) forgetIfGone(clusterName multicluster.ClusterName) {
	if _, registered := r.Members.Snapshot(clusterName); !registered {
		r.Ledger.forgetCluster(clusterName)
	}
}

// apply plans and patches; after a conflict it starts again from a live read.
func (r *NodeReconciler) apply(ctx context.Context, member cluster.Cluster, at nodeKey, node *corev1.Node, views []*view) (plan, error) {
	var done plan
	turns := r.turns(ctx, member, at.cluster)
	err := retry.OnError(patchBackoff, apierrors.IsConflict, func() error {
		now := r.Clock.Now()
		var turnErr error
		done = planNode(input{
			node: node, views: views, now: metav1.NewTime(now),
			fought: func(k key) bool { return r.Ledger.fought(at, node.UID, k, now) },
			mayEvict: func(v *view) bool {
				rollout, err := turns(v)
				turnErr = errors.Join(turnErr, err)
				return rollout.turns.Has(node.Name)
			},
		})
		if turnErr != nil {
			return turnErr
		}
		if done.empty() {
			return nil
		}
		data, err := done.patch(node)
		if err != nil {
			return fmt.Errorf("encoding the patch: %w", err)
		}
		patched := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		err = member.GetClient().Patch(ctx, patched, client.RawPatch(types.MergePatchType, data), fieldOwner)
		if err == nil {
			r.bell.ring(r.Ledger.saw(at, patched)...)
		}
		if apierrors.IsConflict(err) {
			if readErr := member.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(node), node); readErr != nil {
				return readErr
			}
		}
		return err
	})
	return done, err
}

// turns returns a function that tells, once per pass and pool, which nodes may get NoExecute taints.
func (r *NodeReconciler) turns(ctx context.Context, member cluster.Cluster, clusterName multicluster.ClusterName) func(*view) (rollout, error) {
	known := map[*view]rollout{}
	return func(v *view) (rollout, error) {
		if found, ok := known[v]; ok {
			return found, nil
		}
		nodes := &corev1.NodeList{}
		if err := member.GetClient().List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
			return rollout{}, fmt.Errorf("listing nodes: %w", err)
		}
		known[v] = rolloutOf(v, nodes.Items, r.Clock.Now())
		r.Ledger.setWaiting(poolKey{clusterName, v.name}, known[v].pending > 0)
		return known[v], nil
	}
}

// note remembers what has been done to the node, for the fights and for the pools' events.
func (r *NodeReconciler) note(ctx context.Context, at nodeKey, node *corev1.Node, done plan) {
	if done.empty() {
		return
	}
	logf.FromContext(ctx).V(1).Info("Patched a node", "node", node.Name, "joined", len(done.joined), "left", len(done.left), "rewrites", len(done.rewrites))
	now := r.Clock.Now()
	for _, k := range done.rewrites {
		r.Ledger.rewrote(at, node.UID, k, now)
	}
	for _, v := range done.joined {
		r.tell(at, v, func(n *news) { n.joined[node.Name] = node.UID })
	}
	for _, v := range done.left {
		// The nodes of a deleted pool have not left it.
		if v.pool.DeletionTimestamp.IsZero() {
			r.tell(at, v, func(n *news) { n.left[node.Name] = node.UID })
		}
	}
	for _, v := range done.healed() {
		r.tell(at, v, func(n *news) {
			n.healed[node.Name] = healing{node.UID, append(n.healed[node.Name].keys, done.outcomes[v.name].healed...)}
		})
	}
}

// tell leaves news for the next pass of a pool.
func (r *NodeReconciler) tell(at nodeKey, v *view, change func(*news)) {
	pool := poolKey{at.cluster, v.name}
	r.Ledger.happened(pool, change)
	r.bell.ring(pool)
}

// again returns when to look at the node again without an event.
func (p plan) again() time.Duration {
	if p.evictionsHeld {
		return turnInterval
	}
	for _, o := range p.outcomes {
		if len(o.fights) > 0 {
			return fightInterval
		}
	}
	return 0
}

// writableMember returns the member, or nil when nothing may be written there now; work is queued again when it may.
func writableMember(members clusters.Directory, clusterName multicluster.ClusterName) (cluster.Cluster, error) {
	if snapshot, registered := members.Snapshot(clusterName); !registered || !takesPart(snapshot) {
		return nil, nil
	}
	member, err := members.Member(clusterName)
	var notReady *clusters.NotReadyError
	if errors.Is(err, multicluster.ErrClusterNotFound) || errors.As(err, &notReady) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finding cluster %q: %w", clusterName, err)
	}
	return member, nil
}

// takesPart reports whether NodePools of the member are reconciled now.
func takesPart(snapshot clusters.Snapshot) bool {
	return snapshot.Writable() && snapshot.Serves(kindNodePool)
}

// maxReason is how much of an API server's answer is repeated in a condition.
const maxReason = 256

// failureOf is an error for a condition.
func failureOf(err error) failure {
	reason := flotillav1.ReasonApplyFailed
	if apierrors.IsForbidden(err) {
		reason = flotillav1.ReasonForbidden
	}
	var status apierrors.APIStatus
	text := err.Error()
	if errors.As(err, &status) && status.Status().Message != "" {
		text = status.Status().Message
	}
	return failure{reason, clean(text, maxReason)}
}
