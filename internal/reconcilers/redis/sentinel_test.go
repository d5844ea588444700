// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// sentinelState returns the state of a healthy Redis in mode Sentinel with three Pods on three nodes, of which the second
// is the primary since epoch 4, for modification.
func sentinelState(mutate ...func(*state)) *state {
	s := stateOf()
	s.redis.Spec.Mode, s.redis.Spec.Replicas = flotillav1.RedisModeSentinel, new(int32(3))
	s.redis.UID = "f1"
	s.spec = redisspec.Of(s.redis)
	s.redis.Status.PrimaryEpoch, s.redis.Status.Primary = new(int64(4)), "web-1"
	s.recorded.known = true
	s.claims[2] = claimOf(2, "1Gi")
	s.pods = append(s.pods, pod{name: "web-2", ordinal: 2, ready: true, created: reportedAt.Add(-time.Hour), changed: reportedAt.Add(-time.Hour)})
	for i := range s.pods {
		s.pods[i].besides = besides{proxy: true, votes: true, proxies: true}
		s.pods[i].node = fmt.Sprintf("node-%d", i)
	}
	s.tell(1, 4, -time.Hour)
	s.hashAgain()
	for _, m := range mutate {
		m(s)
	}
	return s
}

// tell lets the keeper of a Pod report that it is the primary.
func (s *state) tell(ordinal int, epoch int64, at time.Duration) {
	p := &s.pods[ordinal]
	p.told, p.epoch, p.toldAt = true, epoch, s.now.Add(at)
}

func (s *state) silence(ordinal int) { s.pods[ordinal].told = false }

// unknownSince is the condition of a Redis whose primary has been unknown for this long.
func (s *state) unknownSince(age time.Duration) {
	s.redis.Status.Conditions = append(s.redis.Status.Conditions, metav1.Condition{
		Type: flotillav1.ConditionPrimaryAvailable, Status: metav1.ConditionFalse, Reason: flotillav1.ReasonPrimaryUnknown,
		LastTransitionTime: metav1.NewTime(s.now.Add(-age)),
	})
}

func TestPrimaryOrdinal(t *testing.T) {
	failedOver := func(s *state) { s.redis.Status.LastFailoverTime = &metav1.Time{Time: s.now.Add(-time.Hour)} }
	for name, tc := range map[string]struct {
		mutate func(*state)
		want   int32
	}{
		"who told":                          {func(*state) {}, 1},
		"nobody told":                       {func(s *state) { s.silence(1) }, unknown},
		"the highest epoch":                 {func(s *state) { s.tell(0, 3, 0); s.tell(2, 5, -time.Minute) }, 2},
		"the later of one epoch":            {func(s *state) { s.tell(0, 4, 0) }, 0},
		"an earlier primary is none":        {func(s *state) { failedOver(s); s.silence(1); s.tell(0, 3, -2*time.Hour) }, unknown},
		"the sentinels count anew":          {func(s *state) { failedOver(s); s.silence(1); s.tell(0, 0, -time.Minute) }, 0},
		"one that is being deleted":         {func(s *state) { s.pods[1].deleting, s.pods[1].ready = true, false }, unknown},
		"one that does not vote":            {func(s *state) { s.silence(1); s.pods[2].ordinal = 3; s.tell(2, 9, 0) }, unknown},
		"the last Pod of mode Replication":  {func(s *state) { s.silence(1); s.pods[0].besides = besides{} }, 0},
		"a Pod of mode Replication is none": {func(s *state) { s.pods[0].besides = besides{} }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := sentinelState(tc.mutate)
			if got := s.primaryOrdinal(s.pods); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestReport_failovers(t *testing.T) {
	for name, tc := range map[string]struct {
		mutate    func(*state)
		primary   string
		epoch     int64
		failovers int32
		event     string
	}{
		"told twice":                    {mutate: func(s *state) { s.tell(1, 4, 0) }, primary: "web-1", epoch: 4},
		"another Pod":                   {mutate: func(s *state) { s.tell(2, 5, 0) }, primary: "web-2", epoch: 5, failovers: 1, event: "FailedOver"},
		"the same Pod again":            {mutate: func(s *state) { s.tell(1, 6, 0) }, primary: "web-1", epoch: 6, failovers: 1, event: "FailedOver"},
		"the sentinels count anew":      {mutate: func(s *state) { s.tell(1, 0, 0) }, primary: "web-1", epoch: 0},
		"the primary is gone":           {mutate: func(s *state) { s.silence(1) }, epoch: 4},
		"the primary ends, another led": {mutate: func(s *state) { s.pods[1].deleting = true; s.tell(0, 5, 0) }, primary: "web-0", epoch: 5, failovers: 1, event: "PrimaryChanged"},
		"the former primary is new": {
			mutate: func(s *state) { s.silence(1); s.pods[1].created = s.now; s.tell(0, 5, 0) }, primary: "web-0", epoch: 5, failovers: 1, event: "PrimaryChanged",
		},
		"the first of all": {mutate: func(s *state) { s.redis.Status.PrimaryEpoch, s.redis.Status.Primary = nil, "" }, primary: "web-1", epoch: 4},
		"nobody was known for a while": {
			mutate: func(s *state) { s.redis.Status.Primary = ""; s.silence(1); s.tell(2, 5, 0) }, primary: "web-2", epoch: 5, failovers: 1, event: "FailedOver",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := sentinelState(tc.mutate)
			s.redis.Status.Members = []flotillav1.RedisMember{{Name: "web-1", Role: flotillav1.RedisRolePrimary, Ready: true}}
			before := *s.redis.Status.DeepCopy()
			after := report(before, s, planFor(s), nil)
			if after.Primary != tc.primary || *after.PrimaryEpoch != tc.epoch || after.Failovers != tc.failovers || (after.LastFailoverTime != nil) != (tc.failovers > 0) {
				t.Errorf("got %q at %d, %d failovers, the last at %v; want %q at %d, %d failovers", after.Primary, *after.PrimaryEpoch, after.Failovers, after.LastFailoverTime, tc.primary, tc.epoch, tc.failovers)
			}
			var got []string
			for _, event := range sentinelEvents(s, before, after) {
				got = append(got, event.Reason)
			}
			if strings.Join(got, " ") != tc.event {
				t.Errorf("events are %v, want %q", got, tc.event)
			}
		})
	}
}

// sentinelWell are the conditions of sentinelState.
func sentinelWell() map[string]string { return maps.Clone(wellConditions) }

func TestReport_sentinel(t *testing.T) {
	down := func(ordinal int) func(*state) {
		return func(s *state) {
			s.pods[ordinal].ready, s.pods[ordinal].votes, s.pods[ordinal].proxies = false, false, false
		}
	}
	for name, tc := range map[string]struct {
		mutate func(*state)
		want   []string
	}{
		"well": {mutate: func(*state) {}},
		"a sentinel is down": {
			mutate: down(2), want: []string{"Degraded=True QuorumAtRisk", "Progressing=True ReplicasNotReady", "Ready=False ReplicasNotReady"},
		},
		"two sentinels are down": {
			mutate: func(s *state) { down(0)(s); down(2)(s) },
			want:   []string{"Degraded=True QuorumLost", "PrimaryAvailable=False WritesRefused", "Progressing=True ReplicasNotReady", "Ready=False ReplicasNotReady"},
		},
		"a sentinel restarts in a Pod that is Ready": {mutate: func(s *state) { s.pods[0].votes = false }, want: []string{"Degraded=True QuorumAtRisk"}},
		"a proxy is down": {
			mutate: func(s *state) { s.pods[0].ready, s.pods[0].proxies = false, false },
			want:   []string{"Degraded=True ProxyDown", "Progressing=True ReplicasNotReady", "Ready=False ReplicasNotReady"},
		},
		"the keeper of the primary is restarted": {
			mutate: func(s *state) { s.pods[1].ready, s.pods[1].serves = false, true },
			want:   []string{"Degraded=True ReplicasNotReady", "Progressing=True ReplicasNotReady", "Ready=False ReplicasNotReady"},
		},
		"the server of the primary is not ready": {
			mutate: func(s *state) { s.pods[1].ready = false },
			want:   []string{"Degraded=True ReplicasNotReady", "PrimaryAvailable=False PrimaryNotReady", "Progressing=True ReplicasNotReady", "Ready=False PrimaryNotReady"},
		},
		"the primary has just changed": {mutate: func(s *state) { s.silence(1); s.unknownSince(59 * time.Second) }, want: []string{"PrimaryAvailable=False PrimaryUnknown"}},
		"the primary is unknown": {
			mutate: func(s *state) { s.silence(1); s.unknownSince(time.Minute) }, want: []string{"PrimaryAvailable=False PrimaryUnknown", "Ready=False PrimaryUnknown"},
		},
		"there was no primary yet": {
			mutate: func(s *state) { s.silence(1); s.redis.Status.PrimaryEpoch = nil }, want: []string{"PrimaryAvailable=False PrimaryUnknown", "Ready=False PrimaryUnknown"},
		},
		"nobody knows who was": {
			mutate: func(s *state) {
				s.silence(1)
				s.pods[0].ready, s.pods[0].diagnosis = false, diagnosis{reason: "TopologyUnknown", why: "its start waits", broken: true}
			},
			want: []string{"Degraded=True TopologyUnknown", "PrimaryAvailable=False PrimaryUnknown", "Progressing=False TopologyUnknown", "Ready=False TopologyUnknown", "RolloutBlocked=True TopologyUnknown", "Stalled=True TopologyUnknown"},
		},
		"the primary is empty and nobody can take over": {
			mutate: func(s *state) {
				s.silence(1)
				s.pods[1].ready, s.pods[1].diagnosis = false, diagnosis{reason: "PrimaryVolumeEmpty", emptyVolume: "it is empty", broken: true}
			},
			want: []string{"Degraded=True PrimaryVolumeEmpty", "EmptyPrimaryBlocked=True PrimaryVolumeEmpty", "PrimaryAvailable=False PrimaryUnknown", "Progressing=True ReplicasNotReady", "Ready=False PrimaryVolumeEmpty", "Stalled=True PrimaryVolumeEmpty"},
		},
		"two on one node": {mutate: func(s *state) { s.pods[0].node = "node-1" }, want: []string{"DataAtRisk=True SingleNode"}},
		"the mode changes": {
			mutate: func(s *state) {
				s.recorded.migrating = true
				s.pods[0].besides, s.pods[0].hash = besides{}, "c115440094566fcb-old"
			},
			want: []string{"ConfigApplied=False RollingUpdate", "ModeChanging=True MigratingToSentinel", "Progressing=True RollingUpdate", "Ready=False RollingUpdate"},
		},
		"stopped": {
			mutate: func(s *state) { s.redis.Spec.Replicas, s.spec.Replicas, s.pods = new(int32(0)), new(int32(0)), nil },
			want:   []string{"PrimaryAvailable=False ScaledToZero", "Ready=True ScaledToZero"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := sentinelState(tc.mutate)
			want := sentinelWell()
			for _, condition := range tc.want {
				kind, value, _ := strings.Cut(condition, "=")
				want[kind] = value
			}
			got := map[string]string{}
			for _, condition := range report(*s.redis.Status.DeepCopy(), s, planFor(s), nil).Conditions {
				got[condition.Type] = string(condition.Status) + " " + condition.Reason
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("conditions differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRolloutOf_sentinel(t *testing.T) {
	stale := func(s *state) {
		for i := range s.pods {
			s.pods[i].hash = "c115440094566fcb-old"
		}
	}
	current := func(s *state, ordinals ...int) {
		for _, ordinal := range ordinals {
			s.pods[ordinal].hash = redisspec.PodHash(&s.spec, "v1")
		}
	}
	replication := func(s *state, ordinals ...int) {
		s.recorded.migrating = true
		s.silence(1)
		for _, ordinal := range ordinals {
			s.pods[ordinal].besides = besides{}
		}
	}
	for name, tc := range map[string]struct {
		mutate  func(*state)
		want    []string
		reason  string
		recheck time.Duration
	}{
		"nothing is stale":                 {mutate: func(*state) {}},
		"the highest replica goes first":   {mutate: stale, want: []string{"web-2"}},
		"the primary is not its number":    {mutate: func(s *state) { stale(s); current(s, 2) }, want: []string{"web-0"}},
		"the primary goes last":            {mutate: func(s *state) { stale(s); current(s, 0, 2) }, want: []string{"web-1"}},
		"a Pod that is not Ready":          {mutate: func(s *state) { stale(s); current(s, 2); s.pods[2].ready, s.pods[2].changed = false, s.now }, recheck: rolloutDeadline},
		"the primary is to be approved":    {mutate: func(s *state) { stale(s); current(s, 0, 2); s.spec.UpdateStrategy.Primary = "Supervised" }, reason: "WaitingForApproval"},
		"an unknown primary is waited for": {mutate: func(s *state) { stale(s); s.silence(1); s.unknownSince(time.Minute) }, recheck: 9 * time.Minute},
		"not for ever":                     {mutate: func(s *state) { stale(s); s.silence(1); s.unknownSince(10 * time.Minute) }, want: []string{"web-2"}, reason: "PrimaryUnknown"},
		"what never ran is replaced at once": {
			mutate: func(s *state) {
				stale(s)
				s.silence(1)
				s.pods[2].ready, s.pods[2].diagnosis = false, diagnosis{reason: "ImageUnavailable", broken: true}
			}, want: []string{"web-2"},
		},
		"the volume of a replica is going": {
			mutate: func(s *state) { stale(s); s.claims[2].DeletionTimestamp = &metav1.Time{Time: s.now} }, reason: "VolumeDeleting",
		},
		"the mode changes from the end": {mutate: func(s *state) { stale(s); replication(s, 0, 1, 2) }, want: []string{"web-2"}},
		"a mode does not begin to change with a Pod down": {
			mutate: func(s *state) { stale(s); replication(s, 0, 1, 2); s.pods[1].ready = false }, reason: "ReplicasNotReady",
		},
		"the former primary stays until the sentinels have met": {
			mutate: func(s *state) {
				stale(s)
				current(s, 1, 2)
				replication(s, 0)
				s.pods[1].changed = s.now.Add(-4 * time.Second)
			}, recheck: 6 * time.Second,
		},
		"then it goes": {mutate: func(s *state) { stale(s); current(s, 1, 2); replication(s, 0) }, want: []string{"web-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := sentinelState(tc.mutate)
			s.statefulSet.Spec.Template.Labels = map[string]string{flotillav1.LabelRedisProxy: "true"}
			got := plannedRollout(s)
			var names []string
			for _, p := range got.replace {
				names = append(names, p.name)
			}
			if !slices.Equal(names, tc.want) || got.reason != tc.reason || got.recheck != tc.recheck {
				t.Errorf("got %v %q %q, again after %s; want %v %q after %s", names, got.reason, got.blocked, got.recheck, tc.want, tc.reason, tc.recheck)
			}
		})
	}
}

// plannedRollout returns the rollout of a plan, without regard to whether the children exist.
func plannedRollout(s *state) rollout {
	s.markPrimary(s.pods)
	for i := range s.pods {
		s.pods[i].risk = riskOf(&s.spec, s.pods[i], s.claims[s.pods[i].ordinal])
	}
	return rolloutOf(s, redisspec.PodHash(&s.spec, "v1"), s.pods)
}

func TestForcedPrimary(t *testing.T) {
	for annotation, want := range map[string]string{
		"web-1@claim-1": "1", "web-0@claim-0": "0", "web-1@claim-0": "", "web-1": "", "web-3@claim-3": "", "other-1@claim-1": "", "": "", "@": "", "web-01@claim-1": "",
	} {
		s := sentinelState(func(s *state) {
			for ordinal, claim := range s.claims {
				claim.UID = types.UID(fmt.Sprintf("claim-%d", ordinal))
			}
			s.redis.Annotations = map[string]string{flotillav1.AnnotationForcePrimary: annotation}
		})
		if got := forcedPrimary(s); got != want {
			t.Errorf("%q chooses %q, want %q", annotation, got, want)
		}
		s.spec.Mode = flotillav1.RedisModeReplication
		if got := forcedPrimary(s); got != "" {
			t.Errorf("%q chooses %q in mode Replication", annotation, got)
		}
	}
}

func TestMigrating(t *testing.T) {
	template := func(labels map[string]string) func(*state) {
		return func(s *state) { s.statefulSet.Spec.Template.Labels = labels }
	}
	for name, tc := range map[string]struct {
		mutate []func(*state)
		want   bool
	}{
		"a new Redis": {[]func(*state){func(s *state) { s.statefulSet, s.pods, s.recorded = nil, nil, topology{} }}, false},
		"over the volumes of another": {[]func(*state){func(s *state) {
			s.statefulSet, s.pods, s.recorded = nil, nil, topology{}
			s.claims[0].Annotations = map[string]string{flotillav1.AnnotationInitialized: "true"}
		}}, true},
		"the record is of the other mode": {[]func(*state){func(s *state) { s.recorded.known, s.record, s.pods[0].besides = false, &corev1.ConfigMap{}, besides{} }}, true},
		"the record is lost":              {[]func(*state){template(map[string]string{flotillav1.LabelRedisProxy: "true"}), func(s *state) { s.recorded, s.pods[0].ready = topology{}, false }}, false},
		"the record is lost before":       {[]func(*state){template(nil), func(s *state) { s.recorded, s.pods[0].ready = topology{}, false }}, true},
		"recorded":                        {[]func(*state){func(s *state) { s.recorded.migrating, s.pods[0].ready = true, false }}, true},
		"every Pod is Ready":              {[]func(*state){func(s *state) { s.recorded.migrating = true }}, false},
		"stopped before it was done":      {[]func(*state){func(s *state) { s.recorded.migrating, s.pods, s.spec.Replicas = true, nil, new(int32(0)) }}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := migrating(sentinelState(tc.mutate...)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
