// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

var reportedAt = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// stateOf returns the state of a healthy Redis with two Pods, for modification.
func stateOf(mutate ...func(*state)) *state {
	redis := redisOf(func(s *flotillav1.RedisSpec) { s.Replicas = ptr.To[int32](2) })
	s := &state{redis: redis, spec: redisspec.Of(redis), now: reportedAt, statefulSet: &appsv1.StatefulSet{}, services: map[string]*corev1.Service{}, claims: map[int32]*corev1.PersistentVolumeClaim{}}
	s.password = password{exists: true, version: "v1"}
	hash := redisspec.PodHash(&s.spec, "v1")
	for ordinal := range int32(2) {
		s.claims[ordinal] = claimOf(ordinal, "1Gi")
		s.pods = append(s.pods, pod{name: podName("web", ordinal), ordinal: ordinal, hash: hash, ready: true, created: reportedAt.Add(-time.Hour), changed: reportedAt.Add(-time.Hour)})
	}
	for _, m := range mutate {
		m(s)
	}
	return s
}

// hashAgain gives the Pods the hash of the spec after a change.
func (s *state) hashAgain() {
	for i := range s.pods {
		s.pods[i].hash = redisspec.PodHash(&s.spec, "v1")
	}
}

// wellConditions are the conditions of stateOf, which has no memory limit.
var wellConditions = map[string]string{
	"ConfigApplied": "True Updated", "DataAtRisk": "True MaxMemoryUnset", "Degraded": "False None", "EmptyPrimaryBlocked": "False None",
	"Paused": "False None", "PodsCreated": "True PodsExist", "PrimaryAvailable": "True PrimaryReady", "Progressing": "False Settled", "Ready": "True AllReplicasReady",
	"RolloutBlocked": "False None", "StorageReady": "True Bound",
}

func TestReport(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web-0", errors.New("no"))
	for name, tc := range map[string]struct {
		mutate  func(*state)
		failure error
		ready   string
		// others are the conditions that differ from those of a healthy Redis.
		others []string
	}{
		"well": {mutate: func(*state) {}, ready: "True AllReplicasReady"},
		"scaled to zero": {
			mutate: func(s *state) { s.spec.Replicas, s.pods = ptr.To[int32](0), nil }, ready: "True ScaledToZero",
			others: []string{"PrimaryAvailable=False ScaledToZero"},
		},
		"the primary is missing": {
			mutate: func(s *state) { s.pods, s.absent = s.pods[1:], absence{names: []string{"web-0"}, since: reportedAt} }, ready: "False PrimaryNotReady",
			others: []string{"Degraded=True ReplicasNotReady", "PodsCreated=False CreatingPods", "PrimaryAvailable=False PrimaryNotReady", "Progressing=True ReplicasNotReady"},
		},
		"a replica is not Ready": {
			mutate: func(s *state) { s.pods[1].ready = false }, ready: "False ReplicasNotReady",
			others: []string{"Degraded=True ReplicasNotReady", "Progressing=True ReplicasNotReady"},
		},
		"writes are refused for want of replicas": {
			mutate: func(s *state) { s.spec.Replication.MinReplicasToWrite, s.pods[1].ready = 1, false; s.hashAgain() }, ready: "False ReplicasNotReady",
			others: []string{"Degraded=True ReplicasNotReady", "PrimaryAvailable=False WritesRefused", "Progressing=True ReplicasNotReady"},
		},
		"writes are taken with enough replicas": {
			mutate: func(s *state) { s.spec.Replication.MinReplicasToWrite = 1; s.hashAgain() }, ready: "True AllReplicasReady",
		},
		"a Pod is stale": {
			mutate: func(s *state) { s.pods[0].hash = "old" }, ready: "False RollingUpdate",
			others: []string{"ConfigApplied=False RollingUpdate", "Progressing=True RollingUpdate"},
		},
		"the primary refuses its volume": {
			mutate: func(s *state) {
				s.pods[0].ready, s.pods[0].diagnosis = false, diagnosis{reason: "PrimaryVolumeEmpty", broken: true, emptyVolume: "it is empty"}
			}, ready: "False PrimaryVolumeEmpty",
			others: []string{"Degraded=True PrimaryVolumeEmpty", "EmptyPrimaryBlocked=True PrimaryVolumeEmpty", "PrimaryAvailable=False PrimaryNotReady", "Progressing=True ReplicasNotReady", "Stalled=True PrimaryVolumeEmpty"},
		},
		"a replica has no image": {
			mutate: func(s *state) {
				s.pods[1].ready, s.pods[1].diagnosis = false, diagnosis{reason: "ImageUnavailable", broken: true, why: "ImagePullBackOff"}
			}, ready: "False ReplicasNotReady",
			others: []string{"Degraded=True ImageUnavailable", "Progressing=False ImageUnavailable", "RolloutBlocked=True ImageUnavailable"},
		},
		"the primary needs too much memory": {
			mutate: func(s *state) {
				s.pods[0].ready, s.pods[0].diagnosis = false, diagnosis{reason: "OOMKilled", why: "too much"}
			}, ready: "False PrimaryNotReady",
			others: []string{"Degraded=True OOMKilled", "PrimaryAvailable=False PrimaryNotReady", "Progressing=True ReplicasNotReady"},
		},
		"the password is lost": {
			mutate: func(s *state) { s.password, s.recorded.passwordGenerated = password{}, true }, ready: "False AuthLost",
			others: []string{"ConfigApplied=False AuthLost", "Progressing=False AuthLost", "Stalled=True AuthLost"},
		},
		"a name is taken":  {mutate: func(s *state) { s.foreign = []string{"Service web-any"} }, ready: "False NameConflict", others: []string{"Stalled=True NameConflict"}},
		"writes forbidden": {mutate: func(*state) {}, failure: fmt.Errorf("applying: %w", forbidden), ready: "False Forbidden", others: []string{"Progressing=False Forbidden"}},
		"a lost request":   {mutate: func(*state) {}, failure: errors.New("timeout"), ready: "True AllReplicasReady"},
		"a bad directive": {
			mutate: func(s *state) { s.spec.Config = map[string]flotillav1.ConfigValue{"dir": "/"} }, ready: "False ConfigRejected",
			others: []string{"ConfigApplied=False ConfigRejected", "Progressing=False ConfigRejected", "Stalled=True ConfigRejected"},
		},
		"paused": {
			mutate: func(s *state) { s.spec.Paused = true }, ready: "True AllReplicasReady", others: []string{"Paused=True Paused", "Progressing=False Paused"},
		},
		"ephemeral": {
			mutate: func(s *state) { s.spec.Storage.Type = "EmptyDir"; s.pods[0].hash = redisspec.PodHash(&s.spec, "v1") }, ready: "True AllReplicasReady",
			others: []string{"DataAtRisk=True Ephemeral", "StorageReady=True Ephemeral"},
		},
		"placed in a member": {
			mutate: func(s *state) { s.redis.Spec.Placement = &flotillav1.Placement{} }, ready: "True AllReplicasReady",
			others: []string{"PlacementIgnored=True PlacementInMember"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.mutate)
			status := report(flotillav1.RedisStatus{}, s, planFor(s), tc.failure)
			want := maps.Clone(wellConditions)
			want["Ready"] = tc.ready
			for _, other := range tc.others {
				conditionType, value, _ := strings.Cut(other, "=")
				want[conditionType] = value
			}
			got := map[string]string{}
			for _, condition := range status.Conditions {
				got[condition.Type] = string(condition.Status) + " " + condition.Reason
				if condition.ObservedGeneration != 3 || condition.Message == "" {
					t.Errorf("condition %s is of generation %d and says %q", condition.Type, condition.ObservedGeneration, condition.Message)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("conditions differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(status, report(status, s, planFor(s), tc.failure)); diff != "" {
				t.Errorf("the same state reported again differs:\n%s", diff)
			}
		})
	}
}

func TestRecreatedPods(t *testing.T) {
	well := stateOf()
	before := report(flotillav1.RedisStatus{}, well, planFor(well), nil)
	for name, tc := range map[string]struct {
		mutate func(*state)
		want   []string
	}{
		"nothing happened":       {mutate: func(*state) {}},
		"a Pod is gone":          {mutate: func(s *state) { s.pods = s.pods[:1] }, want: []string{"web-1"}},
		"a Pod is going":         {mutate: func(s *state) { s.pods[0].deleting, s.pods[0].ready = true, false }, want: []string{"web-0"}},
		"a Pod is not Ready":     {mutate: func(s *state) { s.pods[0].ready = false }},
		"a Pod is younger":       {mutate: func(s *state) { s.pods[1].created = reportedAt.Add(time.Second) }, want: []string{"web-1"}},
		"scaled down":            {mutate: func(s *state) { s.spec.Replicas, s.pods = ptr.To[int32](1), s.pods[:1] }},
		"the StatefulSet is new": {mutate: func(s *state) { s.statefulSet, s.pods = nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(tc.mutate)
			if diff := cmp.Diff(tc.want, recreatedPods(s, before)); diff != "" {
				t.Fatalf("Pods differ (-want +got):\n%s", diff)
			}
			after := report(before, s, planFor(s), nil)
			if again := recreatedPods(s, after); len(again) > 0 {
				t.Errorf("%v would be reported twice", again)
			}
		})
	}
}

func TestSentence(t *testing.T) {
	long := sentence("é" + string(slices.Repeat([]byte("x"), 400)))
	if len(long) > maxRefusal || long[:2] != "É" {
		t.Errorf("a long text becomes %d bytes: %q", len(long), long)
	}
	for text, want := range map[string]string{"no.": "No", "a\nb\x00c": "A b c", "": "No message", "\xff\xfeok": "Ok"} {
		if got := sentence(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
