// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis/drift"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

func benchRedis() *flotillav1.Redis {
	return redisOf(func(s *flotillav1.RedisSpec) {
		s.Replicas = ptr.To[int32](3)
		s.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		}
		s.Config = map[string]flotillav1.ConfigValue{"hz": "20", "timeout": "5"}
		s.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
	})
}

// settledState is a Redis whose children are all up to date.
func settledState(t testing.TB) *state {
	t.Helper()
	redis := benchRedis()
	s := &state{redis: redis, spec: redisspec.Of(redis), services: map[string]*corev1.Service{}, password: password{exists: true, version: "v"}}
	for range 5 {
		p := planFor(s)
		if len(p.changes) == 0 {
			return s
		}
		for _, c := range p.changes {
			c.desired.SetUID(types.UID(c.kind + c.desired.GetName()))
			switch made := c.desired.(type) {
			case *corev1.Service:
				s.services[made.Name] = made
			case *corev1.ConfigMap:
				if made.Name == recordName(redis.Name) {
					s.record = made
				} else {
					s.configMap, s.configMaps = made, []*corev1.ConfigMap{made}
				}
			case *policyv1.PodDisruptionBudget:
				s.budget = made
			case *appsv1.StatefulSet:
				s.statefulSet = made
			}
		}
	}
	t.Fatal("the plan does not come to rest")
	return nil
}

// TestAllocations_when_nothing_changes limits the allocations of a plan that changes nothing.
func TestAllocations_when_nothing_changes(t *testing.T) {
	s := settledState(t)
	got := testing.AllocsPerRun(20, func() {
		if p := planFor(s); len(p.changes) > 0 {
			t.Fatal(p.changes)
		}
	})
	if most := 5_500.0; got > most {
		t.Errorf("%.0f allocations, want at most %.0f", got, most)
	}
}

// BenchmarkPlan is a pass over a Redis that needs nothing: everything is rendered and compared.
func BenchmarkPlan(b *testing.B) {
	s := settledState(b)
	b.ReportAllocs()
	for b.Loop() {
		if p := planFor(s); len(p.changes) > 0 {
			b.Fatal(p.changes)
		}
	}
}

func BenchmarkRenderConfigMap(b *testing.B) {
	redis := benchRedis()
	s := redisspec.Of(redis)
	b.ReportAllocs()
	for b.Loop() {
		renderConfigMap(redis, &s)
	}
}

func BenchmarkRenderStatefulSet(b *testing.B) {
	redis := benchRedis()
	s := redisspec.Of(redis)
	b.ReportAllocs()
	for b.Loop() {
		renderStatefulSet(redis, &s, "hash", renderConfigMap(redis, &s).Name, nil)
	}
}

func BenchmarkDifferences(b *testing.B) {
	redis := benchRedis()
	s := redisspec.Of(redis)
	live, desired := renderStatefulSet(redis, &s, "hash", renderConfigMap(redis, &s).Name, nil), renderStatefulSet(redis, &s, "hash", renderConfigMap(redis, &s).Name, nil)
	b.ReportAllocs()
	for b.Loop() {
		if differ := drift.Between(live, desired); len(differ) > 0 {
			b.Fatal(differ)
		}
	}
}

func BenchmarkPodHash(b *testing.B) {
	s := redisspec.Of(benchRedis())
	b.ReportAllocs()
	for b.Loop() {
		redisspec.PodHash(&s, "v1", "v2")
	}
}
