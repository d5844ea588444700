// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/controller"
)

// Setup adds the controller to the manager. It watches members only.
func Setup(mgr mcmanager.Manager, members clusters.Directory, recorder clusters.Recorder, clk clock.PassiveClock, workers int) error {
	reconciler := &Reconciler{Members: members, Recorder: recorder, Clock: clk}
	c, err := controller.New("redis", mgr, members, workers, reconciler)
	if err != nil {
		return err
	}
	members.Subscribe(func(clusterName multicluster.ClusterName) {
		if snapshot, registered := members.Snapshot(clusterName); !registered || !snapshot.Writable() {
			reconciler.answers.forget(clusterName)
			leaders.forgetCluster(clusterName)
		}
	})
	sources := []mcsource.TypedSource[client.Object, clusters.Request]{
		controller.Watch(&flotillav1.Redis{}, controller.ToSelf[*flotillav1.Redis], redisChanged),
		controller.Watch(&appsv1.StatefulSet{}, toOwner[*appsv1.StatefulSet], statefulSetChanged),
		controller.Watch(&corev1.Pod{}, toOwner[*corev1.Pod], podChanged),
		controller.Watch(&corev1.Service{}, toOwner[*corev1.Service], serviceChanged),
		controller.Watch(&corev1.ConfigMap{}, toOwner[*corev1.ConfigMap], nil),
		controller.Watch(&policyv1.PodDisruptionBudget{}, toOwner[*policyv1.PodDisruptionBudget], budgetChanged),
		controller.Watch(&corev1.PersistentVolumeClaim{}, toOwner[*corev1.PersistentVolumeClaim], claimChanged),
	}
	for _, source := range sources {
		if err := c.MultiClusterWatch(source); err != nil {
			return fmt.Errorf("watching the members: %w", err)
		}
	}
	return nil
}

// toOwner maps the objects of a Redis to it by label: Pods and claims have no owner reference to it.
func toOwner[T client.Object](_ context.Context, clusterName multicluster.ClusterName, _ cluster.Cluster, obj T) []clusters.Request {
	name := obj.GetLabels()[flotillav1.LabelRedis]
	if name == "" {
		return nil
	}
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}
	return []clusters.Request{{ClusterName: clusterName, Request: reconcile.Request{NamespacedName: key}}}
}

// metaChanged reports whether metadata that a pass reads or owns has changed.
func metaChanged(before, after client.Object) bool {
	return before.GetUID() != after.GetUID() ||
		before.GetGeneration() != after.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
}

// redisChanged ignores the status, which passes write themselves.
func redisChanged(before, after *flotillav1.Redis) bool {
	return metaChanged(before, after) || !equality.Semantic.DeepEqual(before.Finalizers, after.Finalizers)
}

// statefulSetChanged ignores the counts, which follow from the Pods.
func statefulSetChanged(before, after *appsv1.StatefulSet) bool {
	return metaChanged(before, after) || before.Status.ObservedGeneration != after.Status.ObservedGeneration
}

// podChanged ignores probes, addresses and other conditions.
func podChanged(before, after *corev1.Pod) bool {
	readyBefore, readyAfter := podCondition(before, corev1.PodReady), podCondition(after, corev1.PodReady)
	return metaChanged(before, after) ||
		before.Spec.NodeName != after.Spec.NodeName ||
		before.Status.Phase != after.Status.Phase ||
		conditionStatus(readyBefore) != conditionStatus(readyAfter) ||
		diagnose(before) != diagnose(after) ||
		besideServer(before) != besideServer(after) ||
		crashed(before) != crashed(after)
}

func conditionStatus(condition *corev1.PodCondition) corev1.ConditionStatus {
	if condition == nil {
		return corev1.ConditionUnknown
	}
	return condition.Status
}

// serviceChanged compares the spec, because Services have no generation.
func serviceChanged(before, after *corev1.Service) bool {
	return metaChanged(before, after) || !equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// budgetChanged ignores the status, which follows from the Pods.
func budgetChanged(before, after *policyv1.PodDisruptionBudget) bool {
	return metaChanged(before, after)
}

func claimChanged(before, after *corev1.PersistentVolumeClaim) bool {
	return metaChanged(before, after) ||
		before.Status.Phase != after.Status.Phase ||
		!equality.Semantic.DeepEqual(before.Spec.Resources, after.Spec.Resources) ||
		!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
		!equality.Semantic.DeepEqual(before.Status.AllocatedResourceStatuses, after.Status.AllocatedResourceStatuses)
}

var _ reconcile.TypedReconciler[clusters.Request] = &Reconciler{}
