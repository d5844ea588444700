// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestTrimPod_keeps_what_a_keeper_reports, and nothing of how other containers have ended.
func TestTrimPod_keeps_what_a_keeper_reports(t *testing.T) {
	ended := func(name, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: message, ContainerID: "containerd://1", FinishedAt: metav1.Unix(7, 0)},
		}}
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		ended("redis", "EmptyPrimaryBlocked: x"), ended("keeper", "primary 7"), ended("keeper", string(slices.Repeat([]byte("x"), 4000))),
	}}}
	trimmed, err := trimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	statuses := trimmed.(*corev1.Pod).Status.ContainerStatuses
	if statuses[0].LastTerminationState.Terminated != nil {
		t.Errorf("the server has %+v", statuses[0].LastTerminationState)
	}
	want := corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: metav1.Unix(7, 0), Message: "primary 7"}
	if got := *statuses[1].LastTerminationState.Terminated; got != want {
		t.Errorf("the keeper has %+v, want %+v", got, want)
	}
	if got := statuses[2].LastTerminationState.Terminated.Message; got != "" {
		t.Errorf("a message of %d bytes is kept", len(got))
	}
}

func TestTrimPod_keeps_what_the_spec_of_a_server_is_compared_with(t *testing.T) {
	requests := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	trimmed, err := trimPod(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Name: "redis", Image: "redis:8.2", Command: []string{"sh"}, Ports: []corev1.ContainerPort{{ContainerPort: 6380}}, Resources: requests,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
		Name: "redis", Ports: []corev1.ContainerPort{{ContainerPort: 6380}}, Resources: requests,
	}}}
	if diff := cmp.Diff(want, trimmed.(*corev1.Pod).Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestTrim(t *testing.T) {
	long := string(slices.Repeat([]byte("x"), 5000))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", ManagedFields: []metav1.ManagedFieldsEntry{{}},
		Annotations: map[string]string{"long": long, flotillav1.AnnotationNodeRecord: long, "short": "s", corev1.LastAppliedConfigAnnotation: "{}"},
	}}
	node.Spec.PodCIDR = "10.0.0.0/24"
	node.Status.Images = []corev1.ContainerImage{{}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
	}
	trimmed, err := trimNode(node.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	got := trimmed.(*corev1.Node)
	if keys := slices.Sorted(maps.Keys(got.Annotations)); !slices.Equal(keys, []string{flotillav1.AnnotationNodeRecord, "long", "short"}) {
		t.Errorf("annotations: got %v", keys)
	}
	if len(got.Annotations["long"]) != maxAnnotationBytes+1 || got.Annotations[flotillav1.AnnotationNodeRecord] != long {
		t.Error("a long foreign value is cut to a length that no pool can set, ours is kept")
	}
	if got.Spec.PodCIDR != "" || got.Status.Images != nil || got.ManagedFields != nil || len(got.Status.Conditions) != 1 {
		t.Errorf("got %+v", got)
	}
	if !got.Status.Conditions[0].LastHeartbeatTime.IsZero() {
		t.Error("a heartbeat must not change the cached node")
	}
}
