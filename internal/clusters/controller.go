// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"
)

// MapFunc says which requests an object of a member leads to. It runs on the informer's goroutine and reads caches only.
type MapFunc[T client.Object] func(ctx context.Context, clusterName multicluster.ClusterName, member cluster.Cluster, obj T) []Request

// Watch is a source for MultiClusterWatch. keep filters updates (nil keeps all but re-lists of unchanged objects);
// requests of the old and of the new object are both queued.
func Watch[T client.Object](obj T, toRequests MapFunc[T], keep func(before, after T) bool) mcsource.TypedSource[client.Object, Request] {
	panic("to be written")
}

// ToSelf maps an object to the request that names it in its member.
func ToSelf[T client.Object](_ context.Context, clusterName multicluster.ClusterName, _ cluster.Cluster, obj T) []Request {
	panic("to be written")
}

// NewController makes a controller with a fair queue over members, a gate that drops work of members that are not ready
// (all their keys are queued again when they are), a deadline per pass and panics recovered.
// Requests with an empty ClusterName (the hub) always pass the gate.
func NewController(name string, mgr mcmanager.Manager, members Directory, workers int, reconciler reconcile.TypedReconciler[Request]) (mccontroller.TypedController[Request], error) {
	panic("to be written")
}
