// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redisspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

func redisOf(mutate func(*flotillav1.RedisSpec)) *flotillav1.Redis {
	redis := &flotillav1.Redis{}
	if mutate != nil {
		mutate(&redis.Spec)
	}
	return redis
}

func TestPodHash_changes_only_with_what_a_pod_starts_with(t *testing.T) {
	base := redisspec.Of(redisOf(nil))
	for name, tc := range map[string]struct {
		mutate          func(*flotillav1.RedisSpec)
		wiring, restart bool
	}{
		"replicas":     {func(s *flotillav1.RedisSpec) { s.Replicas = ptr.To[int32](5) }, false, false},
		"paused":       {func(s *flotillav1.RedisSpec) { s.Paused = true }, false, false},
		"storage size": {func(s *flotillav1.RedisSpec) { s.Storage.Size = resource.MustParse("2Gi") }, false, false},
		"written defaults": {func(s *flotillav1.RedisSpec) {
			s.Port, s.Persistence.Mode, s.PodAntiAffinity = 6379, "AOF", "Preferred"
		}, false, false},
		"image":         {func(s *flotillav1.RedisSpec) { s.Image = "redis:8.4" }, false, true},
		"config":        {func(s *flotillav1.RedisSpec) { s.Config = map[string]flotillav1.ConfigValue{"hz": "20"} }, false, true},
		"lag of nobody": {func(s *flotillav1.RedisSpec) { s.Replication.MinReplicasMaxLagSeconds = 5 }, false, false},
		"affinity":      {func(s *flotillav1.RedisSpec) { s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} }, false, true},
		"spread": {func(s *flotillav1.RedisSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: "DoNotSchedule"}}
		}, false, true},
		"labels of Pods": {func(s *flotillav1.RedisSpec) {
			s.PodMetadata = &flotillav1.RedisPodMetadata{Labels: map[string]flotillav1.RedisMetadataValue{"team": "shop"}}
		}, false, true},
		"no labels of Pods": {func(s *flotillav1.RedisSpec) { s.PodMetadata = &flotillav1.RedisPodMetadata{} }, false, false},
		"service":           {func(s *flotillav1.RedisSpec) { s.Service.Type = corev1.ServiceTypeLoadBalancer }, false, false},
		"no budget":         {func(s *flotillav1.RedisSpec) { s.PodDisruptionBudget.Enabled = new(false) }, false, false},
		"supervised":        {func(s *flotillav1.RedisSpec) { s.UpdateStrategy.Primary = flotillav1.RedisPrimarySupervised }, false, false},
		"min replicas":      {func(s *flotillav1.RedisSpec) { s.Replication.MinReplicasToWrite = 1 }, false, true},
		"sentinel":          {func(s *flotillav1.RedisSpec) { s.Mode = flotillav1.RedisModeSentinel }, false, true},
		"port":              {func(s *flotillav1.RedisSpec) { s.Port = 7000 }, true, true},
		"auth":              {func(s *flotillav1.RedisSpec) { s.Auth.Mode = "Disabled" }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := redisspec.PodHash(&base, "v1")
			changed := redisspec.Of(redisOf(tc.mutate))
			after := redisspec.PodHash(&changed, "v1")
			if (before != after) != tc.restart || redisspec.Follows(after, before) == tc.wiring {
				t.Errorf("hash goes from %s to %s, want another: %t, another wiring: %t", before, after, tc.restart, tc.wiring)
			}
		})
	}
	// A known value, so that a new manager notices when it would restart every Pod there is.
	if got, want := redisspec.PodHash(&base, "v1"), "c115440094566fcb-3fa1d90dbc178817"; got != want {
		t.Errorf("the hash of an unchanged spec is %s, want %s", got, want)
	}
}

func TestPodHash_of_a_new_manager_restarts_nothing(t *testing.T) {
	for name, tc := range map[string]struct {
		mutate    func(*flotillav1.RedisSpec)
		passwords []string
		want      string
	}{
		"without a password": {func(s *flotillav1.RedisSpec) { s.Auth.Mode = "Disabled" }, []string{""}, "72861d94ea2d00e5-3fa1d90dbc178817"},
		"two passwords":      {func(*flotillav1.RedisSpec) {}, []string{"v1", "v2"}, "c115440094566fcb.32e1f418c6c159f2-3fa1d90dbc178817"},
		"sentinel":           {func(s *flotillav1.RedisSpec) { s.Mode, s.Replicas = flotillav1.RedisModeSentinel, ptr.To[int32](3) }, []string{"v1"}, "c115440094566fcb-6a8c3380842c86f9"},
		"much of everything": {func(s *flotillav1.RedisSpec) {
			s.Image, s.Port, s.PodAntiAffinity, s.PriorityClassName, s.RuntimeClassName = "valkey/valkey:9.0", 7000, "Required", "high", "fast"
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("2")}
			s.Persistence = flotillav1.RedisPersistence{Mode: "RDB", AppendFsync: "always"}
			s.Config = map[string]flotillav1.ConfigValue{"hz": "20"}
			s.NodeSelector = map[string]string{"disk": "ssd"}
			s.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}}
			s.TerminationGracePeriodSeconds = ptr.To[int64](90)
		}, []string{"v1"}, "353f5f8ca593444c-b57da09b0348c837"},
	} {
		t.Run(name, func(t *testing.T) {
			s := redisspec.Of(redisOf(tc.mutate))
			if got := redisspec.PodHash(&s, tc.passwords...); got != tc.want {
				t.Errorf("the hash of an unchanged spec is %s, want %s: every such Pod would be restarted", got, tc.want)
			}
		})
	}
}

func TestFollows_tells_which_passwords_can_be_rolled(t *testing.T) {
	base := redisspec.Of(redisOf(nil))
	for name, tc := range map[string]struct {
		from, to []string
		want     bool
	}{
		"the same":                           {[]string{"old"}, []string{"old"}, true},
		"another, without the previous one":  {[]string{"old"}, []string{"new"}, false},
		"another, with the previous one":     {[]string{"old"}, []string{"old", "new"}, true},
		"the previous one is dropped":        {[]string{"old", "new"}, []string{"new"}, true},
		"the rotation is taken back":         {[]string{"old", "new"}, []string{"old"}, true},
		"a previous one that never was":      {[]string{"old"}, []string{"wrong", "new"}, false},
		"another rotation before the end":    {[]string{"old", "new"}, []string{"new", "newer"}, true},
		"the previous one is dropped early":  {[]string{"old"}, []string{"new"}, false},
		"a third one in place of the second": {[]string{"old", "new"}, []string{"newer"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := redisspec.Follows(redisspec.PodHash(&base, tc.to...), redisspec.PodHash(&base, tc.from...)); got != tc.want {
				t.Errorf("Pods can be replaced one by one: %t, want %t", got, tc.want)
			}
		})
	}
	elsewhere := redisspec.Of(redisOf(func(s *flotillav1.RedisSpec) { s.Port = 7000 }))
	if redisspec.Follows(redisspec.PodHash(&elsewhere, "old", "new"), redisspec.PodHash(&base, "old")) {
		t.Error("Pods on another port can be replaced one by one")
	}
}

func TestOf_sentinel_has_the_values_that_take_effect(t *testing.T) {
	for name, tc := range map[string]struct {
		mutate    func(*flotillav1.RedisSpec)
		want, lag int32
	}{
		"defaults":          {func(*flotillav1.RedisSpec) {}, 1, 5},
		"more confirmation": {func(s *flotillav1.RedisSpec) { s.Replication.MinReplicasToWrite = 2 }, 2, 5},
		"less lag":          {func(s *flotillav1.RedisSpec) { s.Replication.MinReplicasMaxLagSeconds = 3 }, 1, 3},
		"impatient":         {func(s *flotillav1.RedisSpec) { s.Sentinel = &flotillav1.RedisSentinel{DownAfterMilliseconds: 1900} }, 1, 1},
		"patient":           {func(s *flotillav1.RedisSpec) { s.Sentinel = &flotillav1.RedisSentinel{DownAfterMilliseconds: 60000} }, 1, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := redisspec.Of(redisOf(func(s *flotillav1.RedisSpec) {
				s.Mode = flotillav1.RedisModeSentinel
				tc.mutate(s)
			}))
			if got := s.Replication; got.MinReplicasToWrite != tc.want || got.MinReplicasMaxLagSeconds != tc.lag {
				t.Errorf("min replicas are %d within %d s, want %d within %d s", got.MinReplicasToWrite, got.MinReplicasMaxLagSeconds, tc.want, tc.lag)
			}
			if s.Sentinel.FailoverTimeoutMilliseconds != 10000 || s.Proxy.Image == "" || s.Proxy.MaxConnections != 2000 || s.Sentinel.Resources == nil || s.Proxy.Resources == nil {
				t.Errorf("defaults are missing: %+v, %+v", s.Sentinel, s.Proxy)
			}
		})
	}
	if s := redisspec.Of(redisOf(nil)); s.Sentinel != nil || s.Proxy != nil || s.Replication.MinReplicasToWrite != 0 {
		t.Error("mode Replication has values of mode Sentinel")
	}
}
