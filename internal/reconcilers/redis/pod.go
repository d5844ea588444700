// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// exitWaiting is the exit code of a start script that wants to be tried again.
const exitWaiting = 75

// emptyPrefix begins the termination message of a primary that refuses to start.
const emptyPrefix = "EmptyPrimaryBlocked: "

// brokenReasons are reasons of waiting containers that time does not heal.
var brokenReasons = []string{
	"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
}

// viewPod returns what matters of a Pod; false when it is not one of the StatefulSet.
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
		created:         seen.CreationTimestamp.Time,
		changed:         seen.CreationTimestamp.Time,
		deleting:        seen.DeletionTimestamp != nil,
	}
	if condition := podCondition(seen, corev1.PodReady); condition != nil {
		// A Pod that is on its way out no longer counts, whatever its probe says.
		view.ready = condition.Status == corev1.ConditionTrue && !view.deleting
		view.changed = condition.LastTransitionTime.Time
	}
	if !view.ready {
		view.why, view.broken, view.emptyVolume = diagnose(seen)
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

// crashed tells whether the server does not run although it was started.
func crashed(seen *corev1.Pod) bool {
	status := redisContainer(seen)
	if status == nil || status.Ready {
		return false
	}
	return status.State.Terminated != nil || (status.State.Waiting != nil && status.RestartCount > 0)
}

// diagnose says why a Pod is not Ready, whether it will stay so, and what a refusing start script said.
func diagnose(seen *corev1.Pod) (why string, broken bool, emptyVolume string) {
	if scheduled := podCondition(seen, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable {
		// Room may be made, or a volume or a node be on its way.
		return corev1.PodReasonUnschedulable, false, ""
	}
	status := redisContainer(seen)
	if status == nil {
		return "", false, ""
	}
	ended := status.State.Terminated
	if ended == nil && status.State.Waiting != nil {
		ended = status.LastTerminationState.Terminated
	}
	if ended != nil {
		if message, found := strings.CutPrefix(ended.Message, emptyPrefix); found {
			return flotillav1.ConditionEmptyPrimaryBlocked, true, strings.TrimSpace(message)
		}
		if ended.ExitCode == exitWaiting {
			return "its start waits", false, ""
		}
	}
	if waiting := status.State.Waiting; waiting != nil && slices.Contains(brokenReasons, waiting.Reason) {
		return waiting.Reason, true, ""
	}
	if status.State.Terminated != nil && status.State.Terminated.ExitCode != 0 {
		return fmt.Sprintf("exit code %d", status.State.Terminated.ExitCode), true, ""
	}
	return "", false, ""
}
