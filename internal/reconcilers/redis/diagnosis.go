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
	// exitWaiting is the exit code of a start script that wants to be tried again.
	exitWaiting = 75
	// emptyPrefix begins the termination message of a primary that refuses to start.
	emptyPrefix = "EmptyPrimaryBlocked: "
	// waitPrefix begins the termination message of a start script that wants to be tried again.
	waitPrefix = "Waiting: "
	// diskPrefix begins the termination message of a server that cannot write to its volume.
	diskPrefix = "DiskFull: "
	// oomReason is how a kubelet calls the end of a container that needed more memory than its limit.
	oomReason = "OOMKilled"
	// notReadyYet is said of a server that runs and does not serve.
	notReadyYet = "its server runs, and its readiness probe, which kubectl describe pod shows, does not succeed yet"
	// loopReason is how a kubelet calls the wait before it starts a container once more.
	loopReason = "CrashLoopBackOff"
)

var (
	// imageReasons are reasons of waiting containers whose image is not to be had.
	imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
	// creationReasons are reasons of waiting containers that the node cannot make.
	creationReasons = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)

// diagnosis says why a Pod is not Ready.
type diagnosis struct {
	// reason is one of a Redis' conditions; empty when nothing is known to be wrong.
	reason string
	// why follows "Pod <name> is not Ready: ".
	why string
	// broken says that waiting will not help.
	broken bool
	// emptyVolume is what the start script said about the volume of the primary; empty when it did not refuse it.
	emptyVolume string
	// stuck says that the Pod is being deleted and does not end.
	stuck bool
	// unwritten says why its server may hold data that its volume lacks; empty when it does not.
	unwritten string
}

// diagnose says why a Pod is not Ready, as far as its status tells.
func diagnose(seen *corev1.Pod) diagnosis {
	if scheduled := podCondition(seen, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable {
		// Room may be made, or a volume or a node be on its way.
		return diagnosis{reason: flotillav1.ReasonUnschedulable, why: "no node takes it: " + sentence(scheduled.Message)}
	}
	status := redisContainer(seen)
	if status == nil {
		return diagnosis{}
	}
	if ended := lastEnd(status); ended != nil {
		found := diagnoseEnd(status, ended)
		if seen.DeletionTimestamp != nil && found.reason == flotillav1.ReasonCrashing {
			// Whoever deletes a Pod ends its server.
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
		return diagnosis{reason: flotillav1.ReasonImageUnavailable, broken: true, why: "its image cannot be had (" + waiting.Reason + "); correct spec.image or spec.imagePullSecrets"}
	case slices.Contains(creationReasons, waiting.Reason):
		return diagnosis{reason: flotillav1.ReasonContainerNotCreated, broken: true, why: waiting.Reason + ": " + sentence(waiting.Message)}
	case waiting.Reason == loopReason:
		// The caches do not keep how it ended.
		return diagnosis{reason: flotillav1.ReasonCrashing, broken: true, why: "its server ends again and again; see its log"}
	default:
		return diagnosis{}
	}
}

// lastEnd returns how the server ended that does not serve now, or nil when it has not ended.
func lastEnd(status *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if status.State.Terminated != nil {
		return status.State.Terminated
	}
	// Once its image is not to be had, how it ended before no longer matters.
	if waiting := status.State.Waiting; waiting != nil && (slices.Contains(imageReasons, waiting.Reason) || slices.Contains(creationReasons, waiting.Reason)) {
		return nil
	}
	return status.LastTerminationState.Terminated
}

// diagnoseEnd says what the end of a server means. One that runs again may yet become Ready.
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
		return diagnosis{reason: flotillav1.ReasonCrashing, broken: true, why: fmt.Sprintf("its server ended with exit code %d; see its log", ended.ExitCode)}
	default:
		return diagnosis{reason: flotillav1.ReasonCrashing, why: fmt.Sprintf("its server ended with exit code %d and was started again", ended.ExitCode)}
	}
}
