// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// deletions watches in which order the Pods of the member go, and whether ever two were away at once.
type deletions struct {
	order   []string
	overlap string
}

// watchDeletions follows the Pods until stop is called, which returns what was seen.
func (s *story) watchDeletions(t *testing.T) (stop func() deletions) {
	t.Helper()
	watcher, err := s.member.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(s.namespace), client.MatchingLabels{flotillav1.LabelRedis: redisName})
	if err != nil {
		t.Fatalf("watching the Pods: %v", err)
	}
	result := make(chan deletions, 1)
	go func() {
		var seen deletions
		away := map[string]bool{}
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			if event.Type == watch.Deleted {
				seen.order = append(seen.order, pod.Name)
			}
			going := event.Type == watch.Deleted || pod.DeletionTimestamp != nil
			if going {
				away[pod.Name] = true
			} else if podReady(*pod) {
				delete(away, pod.Name)
			}
			if len(away) > 1 && seen.overlap == "" {
				seen.overlap = strings.Join(slices.Sorted(maps.Keys(away)), " and ")
			}
		}
		result <- seen
	}()
	return func() deletions {
		watcher.Stop()
		return <-result
	}
}

// roll changes the spec under load and checks that the Pods went one by one, the primary last.
func (s *story) roll(t *testing.T, change func(spec *flotillav1.RedisSpec)) {
	t.Helper()
	var seen deletions
	s.mustKeepAll(t, func(*writer) {
		stop := s.watchDeletions(t)
		before := s.identities(t, s.member)
		s.ask(t, change)
		s.whenBroken(t)
		eventually(t, settleTime, "every Pod is replaced", func(ctx context.Context) error {
			now := s.identities(t, s.member)
			for name := range before {
				if now[name] == before[name] {
					return fmt.Errorf("%s is the same as before", name)
				}
			}
			return s.allReady(ctx, s.member, len(before))
		})
		seen = stop()
	})
	s.tell("order %s", strings.Join(seen.order, " "))
	if want := []string{redisName + "-2", redisName + "-1", redisName + "-0"}; !slices.Equal(seen.order, want) {
		t.Errorf("the Pods were replaced in the order %v instead of %v", seen.order, want)
	}
	if seen.overlap != "" {
		t.Errorf("%s were away at the same time", seen.overlap)
	}
}

func rollImage(t *testing.T, s *story) {
	s.roll(t, func(spec *flotillav1.RedisSpec) { spec.Image = s.next })
}

func rollConfig(t *testing.T, s *story) {
	s.roll(t, func(spec *flotillav1.RedisSpec) { spec.Config = map[string]flotillav1.ConfigValue{"hz": "23"} })
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range pods {
		c := s.dialPod(pod)
		if got, err := c.ConfigGet(t.Context(), "hz").Result(); err != nil || got["hz"] != "23" {
			t.Errorf("%s runs with hz %q (%v), not with that of the spec", name, got["hz"], err)
		}
		_ = c.Close()
	}
}

// wrongImage asks for an image that does not exist: the first replica in the first member is all that it costs.
func wrongImage(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) {
		here, there := s.identities(t, s.member), s.identities(t, s.other)
		first := redisName + "-2"
		primaryAndRest := maps.Clone(here)
		delete(primaryAndRest, first)
		before, err := s.copyOf(t.Context(), s.other)
		if err != nil {
			t.Fatal(err)
		}
		var good string
		s.ask(t, func(spec *flotillav1.RedisSpec) { good, spec.Image = spec.Image, s.missing })
		s.whenBroken(t)
		s.awaitCondition(t, flotillav1.ConditionRolloutBlocked, metav1.ConditionTrue, "")
		s.awaitConditionIn(t, s.hub, flotillav1.ConditionProgressing, metav1.ConditionTrue, flotillav1.ReasonRollingOut)
		if s.identities(t, s.member)[first] == here[first] {
			t.Errorf("%s was not touched", first)
		}
		s.mustBeUntouched(t, s.member, primaryAndRest)

		s.ask(t, func(spec *flotillav1.RedisSpec) { spec.Image = good })
		s.awaitCondition(t, flotillav1.ConditionRolloutBlocked, metav1.ConditionFalse, "")
		s.settle(t)
		s.mustBeUntouched(t, s.member, primaryAndRest)
		s.mustBeUntouched(t, s.other, there)
		after, err := s.copyOf(t.Context(), s.other)
		if err != nil {
			t.Fatal(err)
		}
		if after.Generation != before.Generation {
			t.Errorf("the copy in %s is at generation %d instead of %d: it was given the wrong image", s.other.name, after.Generation, before.Generation)
		}
	})
	w.mustFlow(t, "the primary was not touched")
	s.tell("stopped after %s-2 of %s, primary and %s untouched", redisName, s.member.name, s.other.name)
}

func scale(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) {
		for i, replicas := range []int32{1, 3, 2, 3} {
			s.scaleTo(t, replicas)
			if i == 0 {
				s.whenBroken(t)
			}
			s.settle(t)
		}
	})
	w.mustFlow(t, "the primary was not touched")
}

// scaleTo does what kubectl scale and autoscalers do.
func (s *story) scaleTo(t *testing.T, replicas int32) {
	t.Helper()
	seen := s.bare()
	eventually(t, time.Minute, "the hub takes a new scale", func(ctx context.Context) error {
		scale := &autoscalingv1.Scale{}
		if err := s.hub.SubResource("scale").Get(ctx, seen, scale); err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		return s.hub.SubResource("scale").Update(ctx, seen, client.WithSubResourceBody(scale))
	})
}

// cutHub separates the hub from its members: they go on, it says that it does not know, and later what is right.
func cutHub(t *testing.T, s *story) {
	w := s.mustKeepAll(t, func(*writer) {
		before := s.identities(t, s.member)
		s.machine(t, "cut", "hub")
		joined := false
		defer func() {
			if !joined {
				s.machine(t, "join", "hub")
			}
		}()
		began := time.Now()
		if s.full {
			s.awaitUnknown(t)
			s.tell("Unknown after %.0fs", time.Since(began).Seconds())
		}
		s.whenBroken(t)
		duration := s.cut
		if !s.full {
			duration = min(duration, 2*time.Minute)
		}
		lasts(t, duration-time.Since(began), time.Second, "the hub is cut off", func(context.Context) error {
			return s.untouched(t, s.member, before)
		})
		s.awaitUnknown(t)
		s.machine(t, "join", "hub")
		joined = true
		rejoined := time.Now()
		s.settle(t)
		s.tell("right %.0fs after %.0fs", time.Since(rejoined).Seconds(), rejoined.Sub(began).Seconds())
	})
	w.mustFlow(t, "only the hub was cut off")
}

// awaitUnknown waits until the hub says that it does not know how its members are.
func (s *story) awaitUnknown(t *testing.T) {
	t.Helper()
	eventually(t, settleTime, "the hub says that it does not know", func(ctx context.Context) error {
		seen, err := s.copyOf(ctx, s.hub)
		if err != nil {
			return err
		}
		if counts := seen.Status.ClusterCounts; counts == nil || counts.Unknown != 2 || counts.Desired != 2 {
			return fmt.Errorf("it counts %+v", counts)
		}
		return nil
	})
}
