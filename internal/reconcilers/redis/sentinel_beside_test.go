// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestBesideServer(t *testing.T) {
	ended := metav1.NewTime(reportedAt)
	pod := func(message string, code int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{flotillav1.LabelRedisProxy: "true"}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{Name: "redis", Ready: true},
				{Name: "sentinel", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{Name: "proxy", Ready: true},
				{Name: "keeper", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: ended}}},
			}},
		}
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want besides
	}{
		"told":              {pod("primary 12\n", 0), besides{proxy: true, serves: true, votes: true, proxies: true, told: true, epoch: 12, toldAt: reportedAt}},
		"the first epoch":   {pod("primary 0", 0), besides{proxy: true, serves: true, votes: true, proxies: true, told: true, toldAt: reportedAt}},
		"crashed":           {pod("primary 12", 1), besides{proxy: true, serves: true, votes: true, proxies: true}},
		"said nothing":      {pod("", 0), besides{proxy: true, serves: true, votes: true, proxies: true}},
		"of mode otherwise": {&corev1.Pod{}, besides{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := besideServer(tc.pod); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	for _, nonsense := range []string{"primary x", "primary -1", "primary 1 2", "primary 99999999999999999999", "replica 3"} {
		if got := besideServer(pod(nonsense, 0)); got.told {
			t.Errorf("%q was understood as %+v", nonsense, got)
		}
	}
}

func TestDiagnoseBeside(t *testing.T) {
	pod := func(container, reason string, code int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{flotillav1.LabelRedisProxy: "true"}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{Name: "redis", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
				{
					Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
				},
			}},
		}
	}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		reason string
		why    string
	}{
		"no image of the proxy":         {pod("proxy", "ErrImagePull", 0), flotillav1.ReasonImageUnavailable, "spec.proxy.image"},
		"a proxy that cannot be made":   {pod("proxy", "CreateContainerError", 0), flotillav1.ReasonContainerNotCreated, "container proxy"},
		"a sentinel that exits":         {pod("sentinel", "CrashLoopBackOff", 1), flotillav1.ReasonCrashing, "container sentinel"},
		"a keeper that exits":           {pod("keeper", "CrashLoopBackOff", 1), flotillav1.ReasonCrashing, "container keeper"},
		"a keeper that reports":         {pod("keeper", "CrashLoopBackOff", 0), "", "has reported"},
		"a container of somebody else":  {pod("mesh", "CrashLoopBackOff", 1), "", ""},
		"a Pod of the other mode":       {&corev1.Pod{}, "", ""},
		"the image is still downloaded": {pod("proxy", "ContainerCreating", 0), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := diagnoseBeside(tc.pod)
			if got.reason != tc.reason || !strings.Contains(got.why, tc.why) || got.broken != (tc.reason != "") {
				t.Errorf("got %+v, want %q with %q", got, tc.reason, tc.why)
			}
		})
	}
}
