// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "the node's words"}}
}

func ended(code int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
}

func TestDiagnose_who_is_deleted_has_not_crashed(t *testing.T) {
	for code, reason := range map[int32]string{0: "Completed", 137: "Error", 143: "Error"} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, State: ended(code, reason, "")}}}}
		if got := diagnose(pod); got.reason != flotillav1.ReasonCrashing {
			t.Errorf("exit code %d: %+v", code, got)
		}
		pod.DeletionTimestamp = new(metav1.Now())
		if got := diagnose(pod); got != (diagnosis{}) {
			t.Errorf("exit code %d of a Pod that is deleted: %+v", code, got)
		}
	}
}

func TestDiagnose(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, tc := range map[string]struct {
		status      corev1.ContainerStatus
		reason      string
		broken      bool
		emptyVolume string
		says        string
	}{
		"starting":                     {status: corev1.ContainerStatus{State: waiting("ContainerCreating")}},
		"a wrong image":                {status: corev1.ContainerStatus{State: waiting("ImagePullBackOff")}, reason: flotillav1.ReasonImageUnavailable, broken: true, says: "ImagePullBackOff"},
		"a wrong image after a crash":  {status: corev1.ContainerStatus{State: waiting("ErrImagePull"), LastTerminationState: ended(1, "Error", "")}, reason: flotillav1.ReasonImageUnavailable, broken: true},
		"an image that is no name":     {status: corev1.ContainerStatus{State: waiting("InvalidImageName")}, reason: flotillav1.ReasonImageUnavailable, broken: true},
		"an image that runs as root":   {status: corev1.ContainerStatus{State: waiting("CreateContainerConfigError")}, reason: flotillav1.ReasonContainerNotCreated, broken: true, says: "The node's words"},
		"a crash":                      {status: corev1.ContainerStatus{State: ended(1, "Error", "")}, reason: flotillav1.ReasonCrashing, broken: true, says: "exit code 1"},
		"crashes in a row":             {status: corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended(139, "Error", "")}, reason: flotillav1.ReasonCrashing, broken: true, says: "exit code 139"},
		"crashes seen in a cache":      {status: corev1.ContainerStatus{State: waiting("CrashLoopBackOff")}, reason: flotillav1.ReasonCrashing, broken: true, says: "log"},
		"running again after a crash":  {status: corev1.ContainerStatus{State: running, LastTerminationState: ended(1, "Error", "")}, reason: flotillav1.ReasonCrashing, says: "exit code 1"},
		"too much memory":              {status: corev1.ContainerStatus{State: ended(137, "OOMKilled", "")}, reason: flotillav1.ReasonOOMKilled, broken: true, says: "resources.limits.memory"},
		"too much memory, again":       {status: corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended(137, "OOMKilled", "")}, reason: flotillav1.ReasonOOMKilled, broken: true},
		"loading after too much":       {status: corev1.ContainerStatus{State: running, LastTerminationState: ended(137, "OOMKilled", "")}, reason: flotillav1.ReasonOOMKilled},
		"a full disk":                  {status: corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended(73, "Error", "DiskFull: the volume of web-0 cannot be written\n")}, reason: flotillav1.ReasonDiskFull, broken: true, says: "spec.storage.size"},
		"a wait for a peer":            {status: corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended(75, "Error", "Waiting: web-1 is loading its data\n")}, says: "its start waits: web-1 is loading its data"},
		"a wait for the password":      {status: corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended(75, "Error", "Waiting: the password is not there\n")}, says: "its start waits: the password is not there"},
		"a wait without a word":        {status: corev1.ContainerStatus{State: ended(75, "Error", "")}, says: "its start waits; see its log"},
		"running after a wait":         {status: corev1.ContainerStatus{State: running, LastTerminationState: ended(75, "Error", "Waiting: web-1 is loading its data\n")}, says: "readiness probe"},
		"an empty volume":              {status: corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended(78, "Error", "EmptyPrimaryBlocked: it is empty\n")}, reason: flotillav1.ReasonPrimaryVolumeEmpty, broken: true, emptyVolume: "it is empty"},
		"an empty volume, tried again": {status: corev1.ContainerStatus{State: running, LastTerminationState: ended(78, "Error", "EmptyPrimaryBlocked: it is empty\n")}, reason: flotillav1.ReasonPrimaryVolumeEmpty, broken: true, emptyVolume: "it is empty"},
		"running, not Ready":           {status: corev1.ContainerStatus{State: running}, says: "readiness probe"},
		"ended in order and back":      {status: corev1.ContainerStatus{State: running, LastTerminationState: ended(0, "Completed", "")}},
		"no container yet":             {},
	} {
		t.Run(name, func(t *testing.T) {
			tc.status.Name = containerName
			got := diagnose(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{tc.status}}})
			if got.reason != tc.reason || got.broken != tc.broken || got.emptyVolume != tc.emptyVolume || !strings.Contains(got.why, tc.says) {
				t.Errorf("diagnosed %+v, want reason %q, broken: %t, empty volume %q, saying %q", got, tc.reason, tc.broken, tc.emptyVolume, tc.says)
			}
		})
	}
}

func TestDiagnose_quotes_the_scheduler(t *testing.T) {
	got := diagnose(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: 3 Insufficient memory."},
	}}})
	want := diagnosis{reason: flotillav1.ReasonUnschedulable, why: "no node accepts it: 0/3 nodes are available: 3 Insufficient memory"}
	if got != want {
		t.Errorf("diagnosed %+v, want %+v", got, want)
	}
}

func TestViewPod_leaves_out_strangers(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "set"}}
	owned := []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	for name, tc := range map[string]struct {
		pod  metav1.ObjectMeta
		want bool
	}{
		"of the StatefulSet":      {metav1.ObjectMeta{Name: "web-1", OwnerReferences: owned}, true},
		"of nobody":               {metav1.ObjectMeta{Name: "web-1"}, false},
		"without an ordinal":      {metav1.ObjectMeta{Name: "web-debug", OwnerReferences: owned}, false},
		"an ordinal of two forms": {metav1.ObjectMeta{Name: "web-01", OwnerReferences: owned}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := viewPod(&corev1.Pod{ObjectMeta: tc.pod}, set); got != tc.want {
				t.Errorf("the Pod counts: %t, want %t", got, tc.want)
			}
		})
	}
}
