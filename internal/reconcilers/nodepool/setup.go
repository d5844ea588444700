// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/controller"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

// Setup adds the node and the pool controller to the manager.
//
// Rights in a member: nodes get, list, watch, patch · runtimeclasses (node.k8s.io) get, list, watch, create, patch, delete ·
// nodepools (flotilla.dev) get, list, watch, patch · nodepools/status get, patch · nodepools/finalizers update (for
// blockOwnerDeletion) · pods list, for pools with reporting.requested · customresourcedefinitions (apiextensions.k8s.io) get, by the name nodepools.flotilla.dev.
func Setup(mgr mcmanager.Manager, members clusters.Directory, recorder clusters.Recorder, clk clock.PassiveClock, workers int) error {
	ledger, bell := NewLedger(), &bell{}
	nodes, err := controller.New("node", mgr, members, workers, &NodeReconciler{Members: members, Clock: clk, Ledger: ledger, bell: bell})
	if err != nil {
		return err
	}
	pools, err := controller.New("nodepool", mgr, members, workers, &PoolReconciler{Members: members, Recorder: recorder, Clock: clk, Ledger: ledger})
	if err != nil {
		return err
	}
	w := &watches{clock: clk, ledger: ledger, bell: bell, annotations: sets.New[string]()}
	for _, err := range []error{
		nodes.MultiClusterWatch(controller.Watch(&flotillav1.NodePool{}, w.poolToNodes, poolChangesNodes)),
		nodes.MultiClusterWatch(controller.Watch(&corev1.Node{}, w.nodeToNodes, w.nodeChangesPlan)),
		nodes.Watch(controller.OnChange(members, w.opened(members, w.allNodes))),
		pools.MultiClusterWatch(controller.Watch(&flotillav1.NodePool{}, controller.ToSelf[*flotillav1.NodePool], poolChanges)),
		pools.MultiClusterWatch(controller.Watch(&corev1.Node{}, w.nodeToPools, w.nodeChangesStatus)),
		pools.MultiClusterWatch(controller.Watch(&nodev1.RuntimeClass{}, runtimeClassToPool, nil)),
		pools.Watch(controller.OnChange(members, w.opened(members, allPools))),
		pools.Watch(bell),
	} {
		if err != nil {
			return fmt.Errorf("watching for node pools: %w", err)
		}
	}
	return nil
}

// request names a cluster-scoped object of a member.
func request(clusterName multicluster.ClusterName, name string) clusters.Request {
	return clusters.Request{ClusterName: clusterName, Request: reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}}
}

// requests are sorted and without duplicates.
func requests(clusterName multicluster.ClusterName, names sets.Set[string]) []clusters.Request {
	out := make([]clusters.Request, 0, names.Len())
	for _, name := range sets.List(names) {
		out = append(out, request(clusterName, name))
	}
	return out
}

// poolToNodes returns the nodes that belong to the pool or carry its keys.
func (w *watches) poolToNodes(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster, pool *flotillav1.NodePool) []clusters.Request {
	w.watchAnnotations(pool)
	nodes := cachedNodes(ctx, member)
	matcher, names := ownership.NewMatcher(pool), sets.New[string]()
	for i := range nodes {
		if matcher.Concerns(&nodes[i]) {
			names.Insert(nodes[i].Name)
		}
	}
	return requests(clusterName, names)
}

// nodeToNodes returns the node and, while nodes of its pools wait for their turn to receive NoExecute taints, those whose turn
// has come because this one has changed.
func (w *watches) nodeToNodes(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster, node *corev1.Node) []clusters.Request {
	w.bell.ring(w.ledger.observeNode(nodeKey{clusterName, node.Name}, node)...)
	names := sets.New(node.Name)
	var nodes []corev1.Node
	pools := cachedPools(ctx, member)
	for i := range pools {
		at := poolKey{clusterName, pools[i].Name}
		if !w.ledger.paces.waiting.get(at) || !ownership.NewMatcher(&pools[i]).Matches(node) {
			continue
		}
		if nodes == nil {
			nodes = cachedNodes(ctx, member)
		}
		found := ownership.RolloutOf(ownership.NewView(&pools[i]), nodes, w.clock.Now())
		w.ledger.paces.waiting.set(at, found.Pending > 0)
		names = names.Union(found.Turns)
	}
	return requests(clusterName, names)
}

// nodeToPools returns the pools that the node belongs to or carries keys of.
func (w *watches) nodeToPools(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster, node *corev1.Node) []clusters.Request {
	names := sets.New[string]()
	pools := cachedPools(ctx, member)
	for i := range pools {
		if ownership.NewMatcher(&pools[i]).Concerns(node) {
			names.Insert(pools[i].Name)
		}
	}
	return requests(clusterName, names)
}

// runtimeClassToPool returns the pool that a RuntimeClass is named after, whether or not the pool owns it.
func runtimeClassToPool(_ context.Context, clusterName multicluster.ClusterName, _ cluster.Cluster, class *nodev1.RuntimeClass) []clusters.Request {
	if poolName, ok := strings.CutPrefix(class.Name, flotillav1.RuntimeClassPrefix); ok {
		return []clusters.Request{request(clusterName, poolName)}
	}
	return nil
}

// allNodes returns all nodes, including those that were deleted while the member was not watched.
func (w *watches) allNodes(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster) []clusters.Request {
	names := sets.New(w.ledger.seen.nodes(clusterName)...)
	for _, node := range cachedNodes(ctx, member) {
		names.Insert(node.Name)
	}
	return requests(clusterName, names)
}

func allPools(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster) []clusters.Request {
	names := sets.New[string]()
	for _, pool := range cachedPools(ctx, member) {
		names.Insert(pool.Name)
	}
	return requests(clusterName, names)
}

// cachedNodes returns the nodes in the cache of a member. They are not copies and must not be modified.
func cachedNodes(ctx context.Context, member cluster.Cluster) []corev1.Node {
	nodes := &corev1.NodeList{}
	if err := member.GetCache().List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		// The cache is synced before anything is watched. Listing only fails while the member is being offboarded.
		logf.FromContext(ctx).V(1).Info("Listing nodes for a watch", "error", err.Error())
	}
	return nodes.Items
}

// cachedPools is like cachedNodes.
func cachedPools(ctx context.Context, member cluster.Cluster) []flotillav1.NodePool {
	pools := &flotillav1.NodePoolList{}
	if err := member.GetCache().List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).V(1).Info("Listing NodePools for a watch", "error", err.Error())
	}
	return pools.Items
}
