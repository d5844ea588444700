// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"

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
)

// Setup adds the node and the pool controller to the manager.
//
// Rights in a member: nodes get, list, watch, patch · runtimeclasses (node.k8s.io) get, list, watch, create, patch, delete ·
// nodepools (flotilla.dev) get, list, watch, patch · nodepools/status get, patch · nodepools/finalizers update (for
// blockOwnerDeletion) · pods list, for pools with reporting.requested · customresourcedefinitions (apiextensions.k8s.io) get, by the name nodepools.flotilla.dev.
func Setup(mgr mcmanager.Manager, members clusters.Directory, recorder clusters.Recorder, clk clock.PassiveClock, workers int) error {
	ledger, bell := &Ledger{}, &bell{}
	nodes, err := clusters.NewController("node", mgr, members, workers, &NodeReconciler{Members: members, Clock: clk, Ledger: ledger, bell: bell})
	if err != nil {
		return err
	}
	pools, err := clusters.NewController("nodepool", mgr, members, workers, &PoolReconciler{Members: members, Recorder: recorder, Clock: clk, Ledger: ledger})
	if err != nil {
		return err
	}
	w := &watches{clock: clk, ledger: ledger, bell: bell}
	for _, err := range []error{
		nodes.MultiClusterWatch(clusters.Watch(&flotillav1.NodePool{}, w.poolToNodes, poolChangesNodes)),
		nodes.MultiClusterWatch(clusters.Watch(&corev1.Node{}, w.nodeToNodes, w.nodeChangesPlan)),
		nodes.Watch(clusters.OnChange(members, w.opened(members, w.allNodes))),
		pools.MultiClusterWatch(clusters.Watch(&flotillav1.NodePool{}, clusters.ToSelf[*flotillav1.NodePool], poolChanges)),
		pools.MultiClusterWatch(clusters.Watch(&corev1.Node{}, w.nodeToPools, w.nodeChangesStatus)),
		pools.MultiClusterWatch(clusters.Watch(&nodev1.RuntimeClass{}, runtimeClassToPool, nil)),
		pools.Watch(clusters.OnChange(members, w.opened(members, allPools))),
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
	v, names := matcherOf(pool), sets.New[string]()
	for i := range nodes {
		if v.matches(&nodes[i]) || mayRecord(&nodes[i], pool.Name) {
			names.Insert(nodes[i].Name)
		}
	}
	return requests(clusterName, names)
}

// nodeToNodes returns the node and, while nodes of its pools wait for their turn to get NoExecute taints, those whose
// turn it is now that this one has changed.
func (w *watches) nodeToNodes(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster, node *corev1.Node) []clusters.Request {
	w.bell.ring(w.ledger.saw(nodeKey{clusterName, node.Name}, node)...)
	names := sets.New(node.Name)
	var nodes []corev1.Node
	pools := cachedPools(ctx, member)
	for i := range pools {
		at := poolKey{clusterName, pools[i].Name}
		if !w.ledger.isWaiting(at) || !matcherOf(&pools[i]).matches(node) {
			continue
		}
		if nodes == nil {
			nodes = cachedNodes(ctx, member)
		}
		found := rolloutOf(viewOf(&pools[i]), nodes, w.clock.Now())
		w.ledger.setWaiting(at, found.pending > 0)
		names = names.Union(found.turns)
	}
	return requests(clusterName, names)
}

// nodeToPools returns the pools that the node belongs to or carries keys of.
func (w *watches) nodeToPools(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster, node *corev1.Node) []clusters.Request {
	names := sets.New[string]()
	pools := cachedPools(ctx, member)
	for i := range pools {
		if matcherOf(&pools[i]).matches(node) || mayRecord(node, pools[i].Name) {
			names.Insert(pools[i].Name)
		}
	}
	return requests(clusterName, names)
}

// runtimeClassToPool goes by the name, which is what the pool looks for.
func runtimeClassToPool(_ context.Context, clusterName multicluster.ClusterName, _ cluster.Cluster, class *nodev1.RuntimeClass) []clusters.Request {
	if poolName, ok := poolOfRuntimeClass(class.Name); ok {
		return []clusters.Request{request(clusterName, poolName)}
	}
	return nil
}

// allNodes includes those that went while nobody could look.
func (w *watches) allNodes(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster) []clusters.Request {
	names := sets.New(w.ledger.knownNodes(clusterName)...)
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

// cachedNodes reads the cache of a member, without copies: nothing in it may be changed.
func cachedNodes(ctx context.Context, member cluster.Cluster) []corev1.Node {
	nodes := &corev1.NodeList{}
	if err := member.GetCache().List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		// The cache is synced before anything is watched; it only refuses when the member is on its way out.
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
