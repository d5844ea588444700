// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Summer adds up on the hub what the copies report. It reads from caches only.
type Summer struct {
	Hub     client.Client
	Members *kubeconfig.Provider
}

// Reconcile sums up one hub object, and writes its status when it changed.
func (s *Summer) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	pool := &flotillav1.NodePool{}
	if err := s.Hub.Get(ctx, req.NamespacedName, pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := pool.DeepCopy()
	_, hash, err := copyOf(pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	sum := summary{hash: hash}
	names := s.Members.ListClusters()
	slices.Sort(names)
	for _, name := range names {
		member, err := s.Members.Get(ctx, name)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("finding %q: %w", name, err)
		}
		copied := &flotillav1.NodePool{}
		err = member.GetClient().Get(ctx, req.NamespacedName, copied)
		if err != nil && !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("reading the copy in %q: %w", name, err)
		}
		sum.add(name.String(), copied)
	}
	if sum.found == 0 && pool.Status.ClusterCounts == nil {
		return ctrl.Result{}, nil // The placer comes first.
	}
	sum.report(pool)
	if equality.Semantic.DeepEqual(before.Status, pool.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(s.Hub.Status().Patch(ctx, pool, client.MergeFrom(before)))
}

// summary is what the copies of one hub object say together.
type summary struct {
	hash     string
	found    int
	counts   flotillav1.ClusterCounts
	nodes    flotillav1.NodePoolCounts
	clusters []flotillav1.NodePoolClusterStatus
}

// add adds the copy in a member, which has no name when there is none.
func (s *summary) add(member string, copied *flotillav1.NodePool) {
	s.counts.Desired++
	if copied.Name != "" {
		s.found++
	}
	current := copied.Annotations[hashAnnotation] == s.hash
	if current {
		s.counts.Applied++
	}
	ready := metav1.ConditionFalse
	if current && apimeta.IsStatusConditionTrue(copied.Status.Conditions, flotillav1.ConditionReady) {
		ready = metav1.ConditionTrue
		s.counts.Ready++
	} else {
		s.counts.NotReady++
	}
	s.nodes.NodeCount += copied.Status.NodeCount
	s.nodes.ReadyNodes += copied.Status.ReadyNodes
	s.nodes.UpdatedNodes += copied.Status.UpdatedNodes
	s.clusters = append(s.clusters, flotillav1.NodePoolClusterStatus{
		ClusterStatus: flotillav1.ClusterStatus{Name: member, Ready: ready},
		NodeCount:     copied.Status.NodeCount, ReadyNodes: copied.Status.ReadyNodes, UpdatedNodes: copied.Status.UpdatedNodes,
	})
}

func (s *summary) report(pool *flotillav1.NodePool) {
	pool.Status.ObservedGeneration = pool.Generation
	pool.Status.NodePoolCounts = s.nodes
	pool.Status.ClusterCounts = &s.counts
	pool.Status.Clusters = s.clusters
	ready := metav1.Condition{Type: flotillav1.ConditionReady, Status: metav1.ConditionTrue, Reason: flotillav1.ReasonAllReady, ObservedGeneration: pool.Generation}
	if s.counts.Ready < s.counts.Desired {
		ready.Status, ready.Reason = metav1.ConditionFalse, flotillav1.ReasonClustersNotReady
		ready.Message = fmt.Sprintf("%d of %d clusters are ready", s.counts.Ready, s.counts.Desired)
	}
	apimeta.SetStatusCondition(&pool.Status.Conditions, ready)
}
