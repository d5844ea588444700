// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// fails makes the readiness probe of a server that runs fail with a message, as a kubelet reports it.
func (e *env) fails(podName, message string) {
	e.Helper()
	e.serves(podName, false)
	if message == "" {
		return
	}
	pod := &corev1.Pod{}
	e.get(podName, pod)
	e.create(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: podName + "-"},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, FieldPath: "spec.containers{redis}",
		},
		Type: corev1.EventTypeWarning, Reason: "Unhealthy", Message: "Readiness probe failed: " + message + "\n",
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Source: corev1.EventSource{Component: "kubelet"},
	})
}

// serves makes the server of a Pod run for an hour, and be Ready or not since now.
func (e *env) serves(podName string, ready bool) {
	e.Helper()
	e.setReady(podName, ready)
	pod := &corev1.Pod{}
	e.get(podName, pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "redis", Ready: ready, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))}},
	}}
	if err := member.Client.Status().Update(e.ctx, pod); err != nil {
		e.Fatalf("setting the status of Pod %s: %v", podName, err)
	}
}

func TestReconcile_a_primary_that_cannot_persist_is_not_replaced(t *testing.T) {
	const full = "DiskFull: the append-only file cannot be written, so writes are refused: MISCONF Errors writing to the AOF file: No space left on device"
	for name, tc := range map[string]struct{ message, reason, degraded string }{
		"a full disk":         {full, flotillav1.ReasonDiskFull, flotillav1.ReasonDiskFull},
		"a failed snapshot":   {"SnapshotFailed: the last snapshot failed, so writes are refused: MISCONF", flotillav1.ReasonSnapshotFailed, flotillav1.ReasonSnapshotFailed},
		"no event":            {"", flotillav1.ReasonPrimaryNotReady, flotillav1.ReasonReplicasNotReady},
		"a node that is gone": {"", flotillav1.ReasonNodeLost, flotillav1.ReasonNodeLost},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.nodeName = e.namespace
			if tc.reason != flotillav1.ReasonNodeLost {
				e.node(e.nodeName, corev1.ConditionTrue)
			}
			e.running("web", 3)
			e.fails("web-0", tc.message)
			e.settle("web")
			e.expectCondition("web", flotillav1.ConditionReady, metav1.ConditionFalse, flotillav1.ReasonPrimaryNotReady)
			e.expectCondition("web", flotillav1.ConditionDegraded, metav1.ConditionTrue, tc.degraded)
			if result, err := e.try("web"); err != nil || result.RequeueAfter == 0 {
				t.Errorf("a pass returned %+v, %v; events are not watched, so it must look again", result, err)
			}

			// Neither an update one by one nor one of all Pods together ends it.
			for _, change := range []func(*flotillav1.Redis){
				func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.4" },
				func(r *flotillav1.Redis) { r.Spec.Port = 7000 },
			} {
				e.change("web", change)
				e.settle("web")
				e.observed("web")
				e.clock.SetTime(e.clock.Now().Add(time.Hour))
				e.settle("web")
				e.allThere("web-0", "web-1", "web-2")
				e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue, tc.reason)
			}

			// With room again the server persists its data, and the update continues.
			e.serves("web-0", true)
			e.pass("web")
			e.expectCondition("web", flotillav1.ConditionRolloutBlocked, metav1.ConditionFalse, flotillav1.ReasonNone)
			pod := &corev1.Pod{}
			if !e.gone("web-0", pod) && pod.DeletionTimestamp == nil {
				t.Error("the update does not go on")
			}
		})
	}
}

func TestReconcile_a_primary_with_all_data_on_its_volume_may_be_replaced(t *testing.T) {
	for name, message := range map[string]string{
		"an append-only file beside a failed snapshot": "SnapshotFailed: the last snapshot failed, so writes are refused; the append-only file has all data: MISCONF",
		"a server that loads":                          "The server is loading its data",
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.running("web", 1)
			e.fails("web-0", message)
			e.change("web", func(r *flotillav1.Redis) { r.Spec.Image = "redis:8.4" })
			e.settle("web")
			e.observed("web")
			e.settle("web")
			pod := &corev1.Pod{}
			if !e.gone("web-0", pod) && pod.DeletionTimestamp == nil {
				t.Error("the primary is not replaced")
			}
		})
	}
}

// observed does what the StatefulSet controller does when it has seen a new template.
func (e *env) observed(name string) {
	e.Helper()
	e.runStatefulSet(name, true)
}

func (e *env) allThere(names ...string) {
	e.Helper()
	for _, name := range names {
		pod := &corev1.Pod{}
		if e.gone(name, pod) || pod.DeletionTimestamp != nil {
			e.Fatalf("Pod %s was replaced", name)
		}
	}
}
