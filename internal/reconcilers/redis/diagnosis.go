// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// exitWaiting is the exit code of a start script that has to be retried.
	exitWaiting = 75
	// emptyPrefix begins the termination message of a primary that refuses to start.
	emptyPrefix = "EmptyPrimaryBlocked: "
	// waitPrefix begins the termination message of a start script that has to be retried.
	waitPrefix = "Waiting: "
	// topologyPrefix begins the output of the readiness probe of a server that waits because its sentinel knows no primary.
	topologyPrefix = "TopologyUnknown: "
	// diskPrefix begins the termination message of a server that cannot write to its volume.
	diskPrefix = "DiskFull: "
	// oomReason is the kubelet's reason for a container that was killed because of its memory limit.
	oomReason = "OOMKilled"
	// notReadyYet describes a server that runs but does not serve yet.
	notReadyYet = "its server runs, and its readiness probe, which kubectl describe pod shows, does not succeed yet"
	// loopReason is the kubelet's reason for the delay before a restart.
	loopReason = "CrashLoopBackOff"
)

var (
	// imageReasons are reasons of waiting containers whose image cannot be pulled.
	imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
	// creationReasons are reasons of waiting containers that the node cannot create.
	creationReasons = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)

// diagnosis explains why a Pod is not Ready.
type diagnosis struct {
	// reason is a reason of a condition of a Redis, or "" if no problem is known.
	reason string
	// why follows "Pod <name> is not Ready: ".
	why string
	// broken reports whether the problem does not resolve by itself.
	broken bool
	// emptyVolume is the message of the start script about an empty volume of the primary, or "".
	emptyVolume string
	// stuck reports whether the Pod is being deleted and does not terminate.
	stuck bool
	// unwritten explains why its server may have data that its volume lacks, or is "".
	unwritten string
}

// diagnose determines from its status why a Pod is not Ready.
func diagnose(seen *corev1.Pod) diagnosis {
	if scheduled := podCondition(seen, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable {
		// Capacity may be added, or a volume or a node may still be created.
		return diagnosis{reason: flotillav1.ReasonUnschedulable, why: "no node accepts it: " + sentence(scheduled.Message)}
	}
	status := redisContainer(seen)
	if status == nil {
		return diagnosis{}
	}
	if ended := lastEnd(status); ended != nil {
		found := diagnoseEnd(status, ended)
		if seen.DeletionTimestamp != nil && found.reason == flotillav1.ReasonCrashing {
			// The server exits because its Pod is being deleted.
			return diagnosis{}
		}
		return found
	}
	waiting := status.State.Waiting
	switch {
	case waiting == nil && status.State.Running != nil:
		return diagnosis{why: notReadyYet}
	case waiting == nil:
		return diagnosis{}
	case slices.Contains(imageReasons, waiting.Reason):
		return diagnosis{reason: flotillav1.ReasonImageUnavailable, broken: true, why: "its image cannot be pulled (" + waiting.Reason + "); correct spec.image or spec.imagePullSecrets"}
	case slices.Contains(creationReasons, waiting.Reason):
		return diagnosis{reason: flotillav1.ReasonContainerNotCreated, broken: true, why: waiting.Reason + ": " + sentence(waiting.Message)}
	case waiting.Reason == loopReason:
		// The caches do not keep the last termination.
		return diagnosis{reason: flotillav1.ReasonCrashing, broken: true, why: "its server exits repeatedly; see its log"}
	default:
		return diagnosis{}
	}
}

// lastEnd returns the last termination of a server that does not serve now, or nil.
func lastEnd(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if status.State.Terminated != nil {
		return status.State.Terminated
	}
	// If its image cannot be pulled, the previous termination no longer matters.
	if waiting := status.State.Waiting; waiting != nil && (slices.Contains(imageReasons, waiting.Reason) || slices.Contains(creationReasons, waiting.Reason)) {
		return nil
	}
	return status.LastTerminationState.Terminated
}

// diagnoseEnd interprets the termination of a server. A server that runs again may still become Ready.
func diagnoseEnd(status *corev1.ContainerStatus, ended *corev1.ContainerStateTerminated) diagnosis {
	broken := status.State.Running == nil
	if message, found := strings.CutPrefix(ended.Message, emptyPrefix); found {
		return diagnosis{reason: flotillav1.ReasonPrimaryVolumeEmpty, why: flotillav1.ConditionEmptyPrimaryBlocked, broken: true, emptyVolume: strings.TrimSpace(message)}
	}
	switch {
	case strings.HasPrefix(ended.Message, diskPrefix):
		return diagnosis{reason: flotillav1.ReasonDiskFull, broken: broken, why: "its volume cannot be written; raise spec.storage.size"}
	case ended.Reason == oomReason:
		return diagnosis{reason: flotillav1.ReasonOOMKilled, broken: broken, why: "its server needed more memory than its limit and was killed; raise resources.limits.memory or lower memory.maxMemory"}
	case ended.ExitCode == exitWaiting && broken:
		if message, found := strings.CutPrefix(ended.Message, waitPrefix); found {
			return diagnosis{why: "its start waits: " + clause(message)}
		}
		return diagnosis{why: "its start waits; see its log"}
	case ended.ExitCode == exitWaiting:
		return diagnosis{why: notReadyYet}
	case ended.ExitCode == 0 && !broken:
		return diagnosis{}
	case broken:
		return diagnosis{reason: flotillav1.ReasonCrashing, broken: true, why: fmt.Sprintf("its server terminated with exit code %d; see its log", ended.ExitCode)}
	default:
		return diagnosis{reason: flotillav1.ReasonCrashing, why: fmt.Sprintf("its server terminated with exit code %d and was restarted", ended.ExitCode)}
	}
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
