// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// watches decides which changes are worth a pass. Heartbeats are not.
type watches struct {
	clock  clock.PassiveClock
	ledger *Ledger
	bell   *bell

	mu sync.RWMutex
	// annotations are the keys that any pool of any member sets; under mu. Some agents write annotations of their own
	// every few seconds. The set only grows: a key too many costs a pass now and then.
	annotations sets.Set[string]
}

// watchAnnotations lets changes of the pool's annotation keys on nodes through.
func (w *watches) watchAnnotations(pool *flotillav1.NodePool) {
	if len(pool.Spec.Annotations) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.annotations == nil {
		w.annotations = sets.New[string]()
	}
	for k := range pool.Spec.Annotations {
		w.annotations.Insert(k)
	}
}

// annotationsChanged compares our record and what pools set.
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

// nodeChangesPlan reports whether the plan for a node can be another one: heartbeats change none of this.
func (w *watches) nodeChangesPlan(before, after *corev1.Node) bool {
	return before.UID != after.UID ||
		!maps.Equal(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		isReady(before) != isReady(after) ||
		w.annotationsChanged(before.Annotations, after.Annotations)
}

// nodeChangesStatus reports whether the status of a pool can be another one.
func (w *watches) nodeChangesStatus(before, after *corev1.Node) bool {
	return w.nodeChangesPlan(before, after) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable ||
		before.Status.NodeInfo.Architecture != after.Status.NodeInfo.Architecture ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity)
}

// poolChangesNodes reports whether a pool may do something else to nodes now: its spec or its authority changed.
func poolChangesNodes(before, after *flotillav1.NodePool) bool {
	return poolChanges(before, after) ||
		isCleaning(before) != isCleaning(after) ||
		!slices.Equal(before.Status.OwnedKeys, after.Status.OwnedKeys)
}

// poolChanges reports whether a pool was changed by someone else than its own status.
func poolChanges(before, after *flotillav1.NodePool) bool {
	return before.UID != after.UID ||
		before.Generation != after.Generation ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!slices.Equal(before.Finalizers, after.Finalizers)
}

// opened returns the requests of a member when it may be written to again, because work is not kept while it is paused.
func (w *watches) opened(members clusters.Directory, all func(context.Context, multicluster.ClusterName, cluster.Cluster) []clusters.Request) func(context.Context, multicluster.ClusterName) []clusters.Request {
	// Only the goroutine of the source uses it.
	open := map[multicluster.ClusterName]bool{}
	return func(ctx context.Context, clusterName multicluster.ClusterName) []clusters.Request {
		snapshot, registered := members.Snapshot(clusterName)
		if !registered {
			delete(open, clusterName)
			return nil
		}
		was := open[clusterName]
		open[clusterName] = takesPart(snapshot)
		if was || !open[clusterName] {
			return nil
		}
		member, err := members.Member(clusterName)
		if err != nil {
			// It has just left.
			return nil
		}
		return all(ctx, clusterName, member)
	}
}

// poolOfRuntimeClass returns the pool that a RuntimeClass is named after.
func poolOfRuntimeClass(name string) (string, bool) {
	return strings.CutPrefix(name, flotillav1.RuntimeClassPrefix)
}
