// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

// watches decides which changes trigger a pass. Heartbeats do not.
type watches struct {
	clock  clock.PassiveClock
	ledger *Ledger
	bell   *bell

	mu sync.RWMutex
	// annotations are the keys that any pool of any member sets; guarded by mu. Other annotations are ignored, because some
	// agents write theirs every few seconds. The set only grows: an outdated key costs a few passes.
	annotations sets.Set[string]
}

// watchAnnotations makes changes of the pool's annotation keys trigger passes.
func (w *watches) watchAnnotations(pool *flotillav1.NodePool) {
	if len(pool.Spec.Annotations) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range pool.Spec.Annotations {
		w.annotations.Insert(k)
	}
}

// annotationsChanged compares the record and the annotations that pools set.
func (w *watches) annotationsChanged(before, after map[string]string) bool {
	if before[flotillav1.AnnotationNodeRecord] != after[flotillav1.AnnotationNodeRecord] {
		return true
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	for k := range w.annotations {
		was, had := before[k]
		is, has := after[k]
		if had != has || was != is {
			return true
		}
	}
	return false
}

// nodeChangesPlan reports whether a change can affect the plan for the node.
func (w *watches) nodeChangesPlan(before, after *corev1.Node) bool {
	return before.UID != after.UID ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		ownership.IsReady(before) != ownership.IsReady(after) ||
		w.annotationsChanged(before.Annotations, after.Annotations)
}

// nodeChangesStatus reports whether a change can affect the status of a pool.
func (w *watches) nodeChangesStatus(before, after *corev1.Node) bool {
	return w.nodeChangesPlan(before, after) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		before.Status.NodeInfo.Architecture != after.Status.NodeInfo.Architecture ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity)
}

// poolChangesNodes reports whether the spec or the authority of a pool has changed.
func poolChangesNodes(before, after *flotillav1.NodePool) bool {
	return poolChanges(before, after) ||
		ownership.Cleaning(before) != ownership.Cleaning(after) ||
		!slices.Equal(before.Status.OwnedKeys, after.Status.OwnedKeys)
}

// poolChanges reports whether anything but the status of a pool has changed.
func poolChanges(before, after *flotillav1.NodePool) bool {
	return before.UID != after.UID ||
		before.Generation != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!slices.Equal(before.Finalizers, after.Finalizers)
}

// opened returns all requests of a member when it becomes writable, because requests are dropped while it is paused.
func (w *watches) opened(members clusters.Directory, all func(context.Context, multicluster.ClusterName, cluster.Cluster) []clusters.Request) func(context.Context, multicluster.ClusterName) []clusters.Request {
	// Only the goroutine of the source uses the map.
	open := map[multicluster.ClusterName]bool{}
	return func(ctx context.Context, clusterName multicluster.ClusterName) []clusters.Request {
		snapshot, registered := members.Snapshot(clusterName)
		if !registered {
			delete(open, clusterName)
			return nil
		}
		was := open[clusterName]
		open[clusterName] = isReconciled(snapshot)
		if was || !open[clusterName] {
			return nil
		}
		member, err := members.Member(clusterName)
		if err != nil {
			// It has just been offboarded.
			return nil
		}
		return all(ctx, clusterName, member)
	}
}

// bell triggers passes of the pool controller that no change in a member triggers.
type bell struct {
	mu sync.Mutex
	// queue is nil until the controller starts; guarded by mu.
	queue workqueue.TypedRateLimitingInterface[clusters.Request]
}

// Start implements source.TypedSource.
func (b *bell) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[clusters.Request]) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = queue
	return nil
}

// String names the source in logs.
func (b *bell) String() string { return "news of nodes" }

// ring triggers a pass of each pool after passInterval, so that simultaneous news are reported together.
func (b *bell) ring(pools ...poolKey) {
	b.mu.Lock()
	queue := b.queue
	b.mu.Unlock()
	if queue == nil {
		return
	}
	for _, pool := range pools {
		queue.AddAfter(request(pool.cluster, pool.name), passInterval)
	}
}
