// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	s.mustKeepAll(t, func(w *writer) {
		for i := range s.often(1, 3) {
			before, err := s.pods(t.Context(), s.member)
			if err != nil {
				t.Fatal(err)
			}
			for name := range before {
				s.drop(t, &corev1.Pod{}, name)
			}
			if i == 0 {
				s.whenBroken(t)
			}
			for name, pod := range before {
				s.awaitReplaced(t, name, pod.UID)
			}
			s.settle(t)
			w.awaitWrites(t)
			s.mustHaveResumed(t, w)
		}
	})
}

// mustHaveResumed fails the test if writes were not acknowledged soon after the last server was started. How long a kubelet takes
// to start it depends on what happened to it before.
func (s *story) mustHaveResumed(t *testing.T, w *writer) {
	t.Helper()
	const soon = 20 * time.Second
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	var started time.Time
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if running := status.State.Running; running != nil && status.Name == "redis" && running.StartedAt.After(started) {
				started = running.StartedAt.Time
			}
		}
	}
	w.mu.Lock()
	after := w.resumed.Sub(started)
	w.mu.Unlock()
	s.tell("back %.0fs after the last server was started", max(0, after.Seconds()))
	if after > soon {
		t.Errorf("writes were acknowledged %s after the last server was started, want %s at most", after, soon)
	}
}

// killProcess kills Redis itself. What the kernel has of the file survives the process.
func killProcess(t *testing.T, s *story) {
	s.mayLoseBuffered(t, func(kill func(args ...string)) {
		var pod corev1.Pod
		s.get(t, redisName+"-0", &pod)
		kill("kill", s.member.name, string(pod.UID), serverProgram)
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
	s.mayLoseBuffered(t, func(kill func(args ...string)) {
		before := s.identities(t, s.member)
		kill("stop", s.member.name)
		s.machine(t, "start", s.member.name)
		s.awaitTouched(t, before)
	})
}

// mayLoseBuffered is underLoad for what kills the primary. Nothing may be lost but what its buffer held then: while a sync is
// under way, Redis with everysec acknowledges writes before the kernel has them.
func (s *story) mayLoseBuffered(t *testing.T, happen func(kill func(args ...string))) {
	t.Helper()
	buffered := 0
	_, lost := s.underLoad(t, func(w *writer) {
		happen(func(args ...string) {
			watched := s.watchBuffer(t, w)
			s.machine(t, args...)
			buffered = watched()
			s.whenBroken(t)
		})
	})
	s.mustLoseAtMost(t, lost, buffered)
}

// watchBuffer keeps asking the primary whether its buffer is empty, and begins with one that is. What it returns ends that when
// the primary is dead, and says how many writes have been acknowledged since the buffer was seen empty last.
func (s *story) watchBuffer(t *testing.T, w *writer) func() int {
	// Several times between two writes of a connection.
	const often = pace / 4
	t.Helper()
	var pod corev1.Pod
	s.get(t, redisName+"-0", &pod)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var passed atomic.Int64
	passed.Store(-1)
	var done sync.WaitGroup
	done.Go(func() {
		c := s.dialPod(pod)
		defer func() { _ = c.Close() }()
		for ctx.Err() == nil {
			acks := w.acks.Load()
			if info, err := c.InfoMap(ctx, "persistence").Result(); err == nil && info["Persistence"]["aof_buffer_length"] == "0" {
				passed.Store(acks)
			}
			select {
			case <-ctx.Done():
			case <-time.After(often):
			}
		}
	})
	eventually(t, settleTime, "the primary has passed all writes to the kernel", func(context.Context) error {
		if passed.Load() < 0 {
			return fmt.Errorf("its buffer is never empty")
		}
		return nil
	})
	return func() int {
		cancel()
		done.Wait()
		// Each connection may have an answer that it has not counted.
		return int(w.acks.Load()-passed.Load()) + connections
	}
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
