// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// viewPod returns the relevant parts of a Pod, or false if it does not belong to the StatefulSet.
func viewPod(seen *corev1.Pod, set *appsv1.StatefulSet) (pod, bool) {
	ordinal, ok := ordinalOf(seen.Name, set.Name)
	if !ok || !metav1.IsControlledBy(seen, set) {
		return pod{}, false
	}
	view := pod{
		name:            seen.Name,
		ordinal:         ordinal,
		uid:             seen.UID,
		resourceVersion: seen.ResourceVersion,
		node:            seen.Spec.NodeName,
		hash:            seen.Annotations[flotillav1.AnnotationSpecHash],
		config:          cmp.Or(seen.Annotations[flotillav1.AnnotationConfig], formerConfigName(set.Name)),
		created:         seen.CreationTimestamp.Time,
		changed:         seen.CreationTimestamp.Time,
		deleting:        seen.DeletionTimestamp != nil,
	}
	view.besides = besideServer(seen)
	if view.deleting {
		view.ends = seen.DeletionTimestamp.Time
	}
	if at := slices.IndexFunc(seen.Spec.Containers, func(c corev1.Container) bool { return c.Name == containerName }); at >= 0 {
		server := seen.Spec.Containers[at]
		view.resources = server.Resources
		if len(server.Ports) > 0 {
			view.port = server.Ports[0].ContainerPort
		}
	}
	if condition := podCondition(seen, corev1.PodReady); condition != nil {
		// A terminating Pod no longer counts, whatever its probe reports.
		view.ready = condition.Status == corev1.ConditionTrue && !view.deleting
		view.changed = condition.LastTransitionTime.Time
	}
	if !view.ready {
		view.diagnosis = cmp.Or(diagnoseBeside(seen), diagnose(seen))
		view.probed = probed(seen, view.ready) && !view.serves
	}
	return view, true
}

func podCondition(seen *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	at := slices.IndexFunc(seen.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionType })
	if at < 0 {
		return nil
	}
	return &seen.Status.Conditions[at]
}

func redisContainer(seen *corev1.Pod) *corev1.ContainerStatus {
	at := slices.IndexFunc(seen.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == containerName })
	if at < 0 {
		return nil
	}
	return &seen.Status.ContainerStatuses[at]
}

// crashed reports whether the server has exited and does not serve again yet.
func crashed(seen *corev1.Pod) bool {
	status := redisContainer(seen)
	if status == nil || status.Ready {
		return false
	}
	return status.State.Terminated != nil || status.RestartCount > 0
}
