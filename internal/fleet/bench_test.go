// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

var inEU = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}

// benchRedis is a Redis with five overrides that is placed in all members of benchMembers.
func benchRedis() *flotillav1.Redis {
	redis := redisWith(
		patch([]string{"m-001", "m-002", "m-003"}, `{"replicas":5}`),
		flotillav1.Override{ClusterSelector: inEU, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"storage":{"size":"2Gi"},"image":"redis:8.0"}`)}},
		flotillav1.Override{
			ClusterSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"gold", "silver"}}}},
			Patch:           &apiextensionsv1.JSON{Raw: []byte(`{"resources":{"limits":{"memory":"2Gi"}}}`)},
		},
		leave([]string{"m-004", "m-005"}, "replicas", "resources.limits.cpu"),
		patch([]string{"m-099"}, `{"config":{"timeout":"30"}}`),
	)
	redis.Namespace, redis.Name, redis.UID, redis.Generation = "shop", "web", "uid", 7
	redis.Spec.Port, redis.Spec.Mode = 6379, flotillav1.RedisModeReplication
	redis.Spec.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
	redis.Spec.Config = map[string]flotillav1.ConfigValue{"hz": "20", "timeout": "5", "repl-diskless-sync-delay": "3"}
	redis.Spec.NodeSelector = map[string]string{"disk": "ssd", "kubernetes.io/arch": "arm64"}
	redis.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}, {Key: "spot", Operator: corev1.TolerationOpEqual, Value: "no"}}
	redis.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
	return redis
}

// benchPool is a NodePool with labels, taints and a rollout.
func benchPool() *flotillav1.NodePool {
	return &flotillav1.NodePool{Spec: flotillav1.NodePoolSpec{
		Placement:    &flotillav1.Placement{All: true},
		NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"zone": "a"}},
		Labels:       map[string]flotillav1.LabelValue{"example.com/team": "shop", "example.com/tier": "gold"},
		Taints: []flotillav1.NodePoolTaint{
			{Key: "example.com/dedicated", Value: "shop", Effect: corev1.TaintEffectNoSchedule, Propagation: flotillav1.TaintPropagationAlways},
			{Key: "example.com/drain", Effect: corev1.TaintEffectNoExecute, Propagation: flotillav1.TaintPropagationAlways},
		},
		Weight:  10,
		Rollout: &flotillav1.NodePoolRollout{MaxUnavailable: new(intstr.FromString("10%")), MinReadySeconds: new(int32(10))},
	}}
}

// benchMembers are 100 members, a third of them in the EU.
func benchMembers() []Member {
	regions, tiers := []string{"eu", "us", "ap"}, []string{"gold", "silver", "bronze", "none", "none"}
	members := make([]Member, 0, 100)
	for i := range 100 {
		members = append(members, Member{
			Name: fmt.Sprintf("m-%03d", i), Labels: map[string]string{"region": regions[i%3], "tier": tiers[i%5], "example.com/owner": "platform"},
			Accepted: true, Serves: true, Decided: true, Visible: true, Writable: true,
		})
	}
	return members
}

// wantOf is what the copy in the first member in the EU should be.
func wantOf(t testing.TB, kind Kind, object Object) Effective {
	t.Helper()
	specs, err := NewSpecs(kind, object)
	if err != nil {
		t.Fatal(err)
	}
	want, err := specs.For("m-000", map[string]string{"region": "eu", "tier": "gold"})
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// copyWith is a copy that has the effective spec, as a cache of a member shows it.
func copyWith(t testing.TB, kind Kind, object Object) (Effective, Object) {
	t.Helper()
	want, copied := wantOf(t, kind, object), object.DeepCopyObject().(Object)
	if redis, ok := copied.(*flotillav1.Redis); ok {
		redis.Spec.Placement, redis.Spec.Image, redis.Spec.Storage.Size = nil, "redis:8.0", resource.MustParse("2Gi")
		redis.Spec.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("2Gi")
	}
	copied.SetAnnotations(map[string]string{
		flotillav1.AnnotationHub: "hub", flotillav1.AnnotationPlacedFrom: "shop/web", flotillav1.AnnotationSpecHash: want.Hash,
		flotillav1.AnnotationRollout: "t1", flotillav1.AnnotationSpecChangedAt: "2026-11-21T10:00:00Z",
	})
	copied.SetGeneration(3)
	*copied.GetConditions() = []metav1.Condition{
		{Type: flotillav1.ConditionReady, Status: metav1.ConditionTrue, Reason: "AllReplicasReady", Message: "All replicas are ready"},
		{Type: flotillav1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: flotillav1.ReasonSettled},
	}
	return want, copied
}

// TestAllocations_when_nothing_changes bounds what the parts of a pass allocate when the copy is what it should be.
func TestAllocations_when_nothing_changes(t *testing.T) {
	redis, pool, members, cache := benchRedis(), benchPool(), benchMembers(), &SpecCache{}
	redis.Spec.Placement.All, redis.Spec.Placement.ClusterSelector = false, inEU
	choice, err := NewChoice(redis.Spec.Placement, redis.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	redis.Status.Choice, redis.Status.PlacedIn = choice.Hash(), choice.Choose(members, nil)
	wantRedis, copiedRedis := copyWith(t, Redis, redis)
	wantPool, copiedPool := copyWith(t, NodePool, pool)
	carried := func(Member) (string, bool) { return "", false }
	covered := func(want Effective, spec any) {
		if differs, err := Uncovered(want.Spec, spec); err != nil || len(differs) > 0 {
			t.Fatal(differs, err)
		}
	}
	for name, tc := range map[string]struct {
		run  func()
		most float64
	}{
		"the effective spec of a member": {func() {
			specs, err := cache.Of(Redis, redis)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := specs.For(members[0].Name, members[0].Labels); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"a member with the whole schema": {func() { wantRedis.Fit(nil) }, 0},
		"the choice, about one member":   {func() { choice.Takes(members[0], true) }, 0},
		"who leaves, among 100":          {func() { Departures(redis, choice, redis.Status.PlacedIn, members, carried) }, 4},
		"comparing a Redis":              {func() { covered(wantRedis, Redis.Spec(copiedRedis)) }, 32},
		"comparing a NodePool":           {func() { covered(wantPool, NodePool.Spec(copiedPool)) }, 18},
		"reading a copy":                 {func() { CopyOf(Redis, copiedRedis) }, 3},
	} {
		if got := testing.AllocsPerRun(100, tc.run); got > tc.most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", name, got, tc.most)
		}
	}
}

func BenchmarkSpecs_of_a_new_object(b *testing.B) {
	redis, members := benchRedis(), benchMembers()
	b.ReportAllocs()
	for b.Loop() {
		specs, err := NewSpecs(Redis, redis)
		if err != nil {
			b.Fatal(err)
		}
		for _, member := range members {
			if _, err := specs.For(member.Name, member.Labels); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkSpecCache_of_a_known_object(b *testing.B) {
	redis, members, cache := benchRedis(), benchMembers(), &SpecCache{}
	b.ReportAllocs()
	for b.Loop() {
		for _, member := range members {
			specs, err := cache.Of(Redis, redis)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := specs.For(member.Name, member.Labels); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkUncovered(b *testing.B) {
	for _, tc := range []struct {
		kind   Kind
		object Object
	}{{Redis, benchRedis()}, {NodePool, benchPool()}} {
		b.Run(tc.kind.Name, func(b *testing.B) {
			want, copied := copyWith(b, tc.kind, tc.object)
			b.ReportAllocs()
			for b.Loop() {
				if differs, err := Uncovered(want.Spec, tc.kind.Spec(copied)); err != nil || len(differs) > 0 {
					b.Fatal(differs, err)
				}
			}
		})
	}
}

func BenchmarkFit(b *testing.B) {
	want := wantOf(b, Redis, benchRedis())
	lacks := []MissingField{{Path: "spec.memory"}, {Path: "spec.storage.retentionPolicy"}, {Path: "spec.mode", Default: `"Replication"`}}
	b.ReportAllocs()
	for b.Loop() {
		if _, used := want.Fit(lacks); len(used) > 0 {
			b.Fatal(used)
		}
	}
}

func BenchmarkCopyOf(b *testing.B) {
	_, copied := copyWith(b, Redis, benchRedis())
	b.ReportAllocs()
	for b.Loop() {
		CopyOf(Redis, copied)
	}
}

func BenchmarkChoice(b *testing.B) {
	placement := &flotillav1.Placement{ClusterSelector: inEU, Clusters: []string{"m-001", "m-002"}}
	members := benchMembers()
	placedIn, err := Choose(placement, "shop", members, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("one member", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			choice, err := NewChoice(placement, "shop")
			if err != nil || !choice.Takes(members[0], true) {
				b.Fatal(err)
			}
		}
	})
	b.Run("all members", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if chosen, err := Choose(placement, "shop", members, placedIn); err != nil || len(chosen) != len(placedIn) {
				b.Fatal(chosen, err)
			}
		}
	})
}

func BenchmarkDepartures(b *testing.B) {
	redis, members := benchRedis(), benchMembers()
	redis.Spec.Placement.All, redis.Spec.Placement.ClusterSelector = false, inEU
	choice, err := NewChoice(redis.Spec.Placement, redis.Namespace)
	if err != nil {
		b.Fatal(err)
	}
	redis.Status.Choice, redis.Status.PlacedIn = choice.Hash(), choice.Choose(members, nil)
	carried := func(Member) (string, bool) { return "", false }
	b.ReportAllocs()
	for b.Loop() {
		if departures := Departures(redis, choice, redis.Status.PlacedIn, members, carried); len(departures) > 0 {
			b.Fatal(departures)
		}
	}
}

func BenchmarkWaves_Next(b *testing.B) {
	turns := make([]Turn, 0, 100)
	for i := range 100 {
		t := turn(fmt.Sprintf("m-%03d", i))
		if i < 30 {
			took(time.Minute)(&t)
		}
		turns = append(turns, t)
	}
	b.ReportAllocs()
	for b.Loop() {
		if wave := waves.Next(turns, waveTime); len(wave.Held) == 0 {
			b.Fatal(wave)
		}
	}
}

func BenchmarkEntryOf(b *testing.B) {
	redis, member := benchRedis(), benchMembers()[0]
	want, copied := copyWith(b, Redis, redis)
	seen := CopyOf(Redis, copied)
	seen.ObservedGeneration = seen.Generation
	previous := EntryOf(Observation{Name: member.Name, Fate: FateApply, Member: &member, Copy: seen, Want: want}, redis.Generation, waveTime).ClusterStatus
	b.ReportAllocs()
	for b.Loop() {
		EntryOf(Observation{Name: member.Name, Fate: FateApply, Member: &member, Copy: seen, Want: want, Previous: &previous}, redis.Generation, waveTime)
	}
}
