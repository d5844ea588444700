// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

// usageInterval is how often the Pods of a member are read, however many pools report them.
const usageInterval = time.Minute

// running selects the Pods that use resources of a node.
var running = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// usages remembers what the Pods of members request.
type usages struct {
	mu        sync.Mutex
	byCluster map[multicluster.ClusterName]ownership.Usage
	// reading are the members whose Pods are being read.
	reading map[multicluster.ClusterName]bool
}

// claim returns what is known of a member's Pods, and whether the caller has to read them and call set.
func (u *usages) claim(clusterName multicluster.ClusterName, now time.Time) (ownership.Usage, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known := u.byCluster[clusterName]
	if u.reading[clusterName] || !known.At.IsZero() && now.Sub(known.At) < usageInterval {
		return known, false
	}
	u.reading[clusterName] = true
	return known, true
}

func (u *usages) set(clusterName multicluster.ClusterName, read ownership.Usage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.reading, clusterName)
	u.byCluster[clusterName] = read
}

func (u *usages) forget(clusterName multicluster.ClusterName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byCluster, clusterName)
}

// reportsUsage reports whether the pool's status shows what Pods request.
func reportsUsage(pool *flotillav1.NodePool) bool {
	return pool.Spec.Reporting != nil && pool.Spec.Reporting.Requested
}

// usage returns what is known of the member's Pods. It reads them first if that is due and no other pass is reading them.
func (r *PoolReconciler) usage(ctx context.Context, member cluster.Cluster, clusterName multicluster.ClusterName) ownership.Usage {
	known, claimed := r.Ledger.usages.claim(clusterName, r.Clock.Now())
	if !claimed {
		return known
	}
	defer func() { r.Ledger.usages.set(clusterName, known) }()
	byNode, err := readRequests(ctx, member)
	known.At = r.Clock.Now()
	if err != nil {
		known.Failure = failureOf(err)
		if known.Failure.Reason != flotillav1.ReasonForbidden {
			known.Failure.Reason = flotillav1.ReasonMeasuringFailed
		}
		return known
	}
	known.ByNode, known.Failure = byNode, ownership.Failure{}
	return known
}

// readRequests reads the Pods page by page from the API server, because the cache does not have them.
func readRequests(ctx context.Context, member cluster.Cluster) (ownership.Requests, error) {
	byNode := ownership.Requests{}
	next := ""
	for {
		pods := &corev1.PodList{}
		err := member.GetAPIReader().List(ctx, pods, client.MatchingFieldsSelector{Selector: running}, client.Limit(livePage), client.Continue(next))
		if apierrors.IsResourceExpired(err) && next != "" {
			return nil, fmt.Errorf("listing Pods took too long: %w", err)
		}
		if err != nil {
			return nil, fmt.Errorf("listing Pods: %w", err)
		}
		for i := range pods.Items {
			byNode.Add(&pods.Items[i])
		}
		if next = pods.Continue; next == "" {
			return byNode, nil
		}
	}
}
