// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// serverProgram matches the executable of Redis and of Valkey; a sentinel is the same one.
const serverProgram = "*-server"

// awaitReplaced waits until a Pod is another one than before, and Ready.
func (r *instance) awaitReplaced(t *testing.T, name string, before types.UID) {
	t.Helper()
	eventually(t, settleTime, name+" is back", func(ctx context.Context) error {
		var pod corev1.Pod
		if err := r.member.Get(ctx, r.key(name), &pod); err != nil {
			return err
		}
		if pod.UID == before || !podReady(pod) {
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return nil
	})
}

// awaitEvent waits until the member tells of something, with certain words in it.
func (r *instance) awaitEvent(t *testing.T, reason, words string) {
	t.Helper()
	eventually(t, settleTime, "event "+reason, func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := r.member.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Reason == reason && event.Regarding.Name == redisName && strings.Contains(event.Note, words) {
				return nil
			}
		}
		return fmt.Errorf("none of %d events is it", len(list.Items))
	})
}

func deletePrimary(t *testing.T, s *story) {
	times := 20
	if !s.full {
		times = 3
	}
	s.tell("%d times", times)
	s.mustKeepAll(t, func(*writer) {
		for i := range times {
			var pod corev1.Pod
			s.get(t, redisName+"-0", &pod)
			s.drop(t, &corev1.Pod{}, pod.Name)
			if i == 0 {
				s.whenBroken(t)
			}
			s.awaitReplaced(t, pod.Name, pod.UID)
		}
	})
	s.awaitEvent(t, "PodRecreated", "")
}

func deleteReplicas(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) {
		for _, name := range []string{redisName + "-1", redisName + "-2"} {
			var pod corev1.Pod
			s.get(t, name, &pod)
			s.drop(t, &corev1.Pod{}, name)
			s.whenBroken(t)
			s.awaitReplaced(t, name, pod.UID)
		}
	})
	w.mustFlow(t, "the primary was not touched")
}

func deleteAllPods(t *testing.T, s *story) {
	s.mustKeepAll(t, func(*writer) {
		before, err := s.pods(t.Context(), s.member)
		if err != nil {
			t.Fatal(err)
		}
		for name := range before {
			s.drop(t, &corev1.Pod{}, name)
		}
		s.whenBroken(t)
		for name, pod := range before {
			s.awaitReplaced(t, name, pod.UID)
		}
	})
}

// killProcess kills Redis itself. With appendfsync everysec, what the kernel has of the file survives the process.
func killProcess(t *testing.T, s *story) {
	s.mustKeepAll(t, func(*writer) {
		var pod corev1.Pod
		s.get(t, redisName+"-0", &pod)
		s.machine(t, "kill", s.member.name, string(pod.UID), serverProgram)
		s.whenBroken(t)
		eventually(t, settleTime, "the container was started again", func(ctx context.Context) error {
			var now corev1.Pod
			if err := s.member.Get(ctx, s.key(pod.Name), &now); err != nil {
				return err
			}
			if now.UID != pod.UID {
				return fmt.Errorf("there is another Pod")
			}
			if now.Status.ContainerStatuses[0].RestartCount == pod.Status.ContainerStatuses[0].RestartCount || !podReady(now) {
				return fmt.Errorf("the container was restarted %d times, as before, or is not Ready", now.Status.ContainerStatuses[0].RestartCount)
			}
			return nil
		})
	})
}

// rebootNode kills the kubelet, containerd and every process of every Pod at the same moment, and starts the node again.
// The machine below keeps running, so what Redis has handed to the kernel is there afterwards.
func rebootNode(t *testing.T, s *story) {
	s.mustKeepAll(t, func(*writer) {
		before := s.identities(t, s.member)
		s.machine(t, "stop", s.member.name)
		s.whenBroken(t)
		s.machine(t, "start", s.member.name)
		s.awaitTouched(t, before)
	})
}

// awaitTouched waits until all of these Pods are others than before, or were started again, and are Ready.
func (r *instance) awaitTouched(t *testing.T, before map[string]string) {
	t.Helper()
	eventually(t, settleTime, "the containers were started again", func(ctx context.Context) error {
		pods, err := r.pods(ctx, r.member)
		if err != nil {
			return err
		}
		now := r.identities(t, r.member)
		for name := range before {
			if now[name] == before[name] || !podReady(pods[name]) {
				return fmt.Errorf("%s is not back", name)
			}
		}
		return nil
	})
}
