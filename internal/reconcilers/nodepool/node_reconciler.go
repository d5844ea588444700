// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

const (
	// turnInterval is how often a node is reconciled that waits for its turn and not for a known time. Changes of other nodes
	// of the pool trigger it as well.
	turnInterval = 10 * time.Second
	// fightInterval is how often a node with a fight is reconciled, to see whether the fight is over.
	fightInterval = time.Minute
	// conflictInterval is the pause after five conflicts in a row.
	conflictInterval = time.Second
)

// patchBackoff is for conflicts; one or two attempts are enough in practice.
var patchBackoff = wait.Backoff{Steps: 5, Duration: 20 * time.Millisecond, Factor: 2, Jitter: 0.5}

// NodeReconciler makes nodes carry what the NodePools of their member say. Requests name a Node.
type NodeReconciler struct {
	Members clusters.Directory
	Clock   clock.PassiveClock
	// Ledger is shared with the PoolReconciler, which reports the news.
	Ledger *Ledger
	// bell triggers the PoolReconciler.
	bell *bell
}

// Reconcile implements reconcile.TypedReconciler.
func (r *NodeReconciler) Reconcile(ctx context.Context, req clusters.Request) (reconcile.Result, error) {
	member, err := writableMember(r.Members, req.ClusterName)
	if err != nil || member == nil {
		if _, registered := r.Members.Snapshot(req.ClusterName); !registered {
			r.Ledger.forgetCluster(req.ClusterName)
		}
		return reconcile.Result{}, err
	}
	at := nodeKey{req.ClusterName, req.Name}
	// This precedes the reading of pools: a deleted pool waits for passes that may not have seen its deletion.
	defer r.Ledger.inFlight.begin(at)()
	node := &corev1.Node{}
	if err := member.GetClient().Get(ctx, req.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.Ledger.forgetNode(at)
			r.bell.ring(r.Ledger.nodeGone(at, r.Clock.Now())...)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.bell.ring(r.Ledger.observeNode(at, node)...)
	pools := &flotillav1.NodePoolList{}
	if err := member.GetClient().List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing NodePools: %w", err)
	}
	done, wait, err := r.apply(clusters.CausedBy(ctx, node), member, at, node, ownership.Views(pools.Items))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	case apierrors.IsNotFound(err):
		r.Ledger.forgetNode(at)
		return reconcile.Result{}, nil
	case err != nil:
		r.Ledger.failures.set(at, failureOf(err))
		return reconcile.Result{}, fmt.Errorf("patching node %q: %w", req.Name, err)
	}
	r.Ledger.failures.remove(at)
	r.remember(ctx, at, node, done)
	return reconcile.Result{RequeueAfter: requeueAfter(done, wait)}, nil
}

// apply plans and patches, and returns when the turn of a node that waits for it may come. After a conflict it starts again
// from a live read.
func (r *NodeReconciler) apply(ctx context.Context, member cluster.Cluster, at nodeKey, node *corev1.Node, views []*ownership.View) (ownership.Plan, time.Duration, error) {
	var done ownership.Plan
	var turn time.Duration
	rollouts := r.rollouts(ctx, member, at.cluster)
	err := clusters.RetryOnConflict(patchBackoff, func() error {
		now := r.Clock.Now()
		var rolloutErr error
		done = ownership.PlanNode(ownership.PlanInput{
			Node: node, Views: views, Now: now,
			Fought: func(k ownership.Key) bool { return r.Ledger.fights.ongoing(rewrite{at, node.UID, k}, now) },
			MayEvict: func(v *ownership.View) bool {
				rollout, err := rollouts(v)
				rolloutErr = errors.Join(rolloutErr, err)
				if rollout.Turns.Has(node.Name) {
					return true
				}
				if wait := cmp.Or(rollout.Waits[node.Name], turnInterval); turn == 0 || wait < turn {
					turn = wait
				}
				return false
			},
		})
		if rolloutErr != nil {
			return rolloutErr
		}
		if done.Empty() {
			return nil
		}
		data, err := done.Patch(node)
		if err != nil {
			return fmt.Errorf("encoding the patch: %w", err)
		}
		patched := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		err = member.GetClient().Patch(ctx, patched, client.RawPatch(types.MergePatchType, data), fieldOwner)
		if err == nil {
			r.bell.ring(r.Ledger.observeNode(at, patched)...)
		}
		if apierrors.IsConflict(err) {
			if readErr := member.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(node), node); readErr != nil {
				return readErr
			}
		}
		return err
	})
	return done, turn, err
}

// rollouts returns a function that computes the rollout of a pool once per pass.
func (r *NodeReconciler) rollouts(ctx context.Context, member cluster.Cluster, clusterName multicluster.ClusterName) func(*ownership.View) (ownership.Rollout, error) {
	known := map[*ownership.View]ownership.Rollout{}
	return func(v *ownership.View) (ownership.Rollout, error) {
		if found, ok := known[v]; ok {
			return found, nil
		}
		nodes := &corev1.NodeList{}
		if err := member.GetClient().List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
			return ownership.Rollout{}, fmt.Errorf("listing nodes: %w", err)
		}
		known[v] = ownership.RolloutOf(v, nodes.Items, r.Clock.Now())
		r.Ledger.paces.waiting.set(poolKey{clusterName, v.Pool.Name}, known[v].Pending > 0)
		return known[v], nil
	}
}

// remember records what was done to the node, for the fights and for the events of the pools.
func (r *NodeReconciler) remember(ctx context.Context, at nodeKey, node *corev1.Node, done ownership.Plan) {
	if done.Empty() {
		return
	}
	logf.FromContext(ctx).V(1).Info("Patched a node", "node", node.Name, "joined", len(done.Joined), "left", len(done.Left))
	now := r.Clock.Now()
	for _, pool := range done.Joined {
		r.addNews(at, pool.Name, func(n *news) { n.joined[node.Name] = nodeNews{uid: node.UID} })
	}
	for _, pool := range done.Left {
		// The nodes of a deleted pool have not left it.
		if pool.DeletionTimestamp.IsZero() {
			r.addNews(at, pool.Name, func(n *news) { n.left[node.Name] = nodeNews{uid: node.UID} })
		}
	}
	for poolName, o := range done.Outcomes {
		for _, k := range o.Healed {
			r.Ledger.fights.add(rewrite{at, node.UID, k}, now)
			r.addNews(at, poolName, func(n *news) {
				n.healed[node.Name] = nodeNews{node.UID, append(n.healed[node.Name].keys, k.Words())}
			})
		}
	}
}

// addNews adds news for the next pass of a pool, and triggers it.
func (r *NodeReconciler) addNews(at nodeKey, poolName string, change func(*news)) {
	pool := poolKey{at.cluster, poolName}
	r.Ledger.news.add(pool, change)
	r.bell.ring(pool)
}

// requeueAfter returns when to reconcile the node again without an event. turn is when its turn may come.
func requeueAfter(p ownership.Plan, turn time.Duration) time.Duration {
	if p.EvictionsHeld {
		return turn
	}
	for _, o := range p.Outcomes {
		if len(o.Fights) > 0 {
			return fightInterval
		}
	}
	return 0
}
