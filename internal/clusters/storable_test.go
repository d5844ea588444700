// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestStorable(t *testing.T) {
	whole := func() flotillav1.RedisStatus {
		return flotillav1.RedisStatus{
			Replicas: 2, ReadyReplicas: 1, Primary: "cache-0",
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllReady", Message: "All", ObservedGeneration: 3,
				LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
			}},
			Members: []flotillav1.RedisMember{{Name: "cache-0", Role: "Primary", Node: "a"}, {Name: "cache-1", Role: "Replica", Node: "b"}},
		}
	}
	tests := map[string]struct {
		lacks []string
		want  func(*flotillav1.RedisStatus)
	}{
		"nothing is lacking":     {want: func(*flotillav1.RedisStatus) {}},
		"a field":                {lacks: []string{"status.primary"}, want: func(s *flotillav1.RedisStatus) { s.Primary = "" }},
		"a list":                 {lacks: []string{"status.members"}, want: func(s *flotillav1.RedisStatus) { s.Members = nil }},
		"a field of items":       {lacks: []string{"status.members[].node"}, want: func(s *flotillav1.RedisStatus) { s.Members[0].Node, s.Members[1].Node = "", "" }},
		"of conditions":          {lacks: []string{"status.conditions[].observedGeneration"}, want: func(s *flotillav1.RedisStatus) { s.Conditions[0].ObservedGeneration = 0 }},
		"what is not there":      {lacks: []string{"status.clusterCounts.ready", "status.clusters[].name", "status.invented.*.x"}, want: func(*flotillav1.RedisStatus) {}},
		"of another kind's name": {lacks: []string{"status"}, want: func(*flotillav1.RedisStatus) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := whole()
			tc.want(&want)
			got, err := Storable(Snapshot{LacksStatus: map[string][]string{"Redis": tc.lacks, "NodePool": {"status.replicas"}}}, "Redis", whole())
			if err != nil || !equality.Semantic.DeepEqual(want, got) {
				t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, got))
			}
		})
	}
}

// TestStorable_leaves_the_rest_alone: what is compared with the stored status may not look different for having been converted.
func TestStorable_leaves_the_rest_alone(t *testing.T) {
	status := flotillav1.NodePoolStatus{Status: 200, OwnedKeys: []string{"label:a"}}
	status.NodeCount = 3
	status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	want := *status.DeepCopy()
	status.Requested = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	got, err := Storable(Snapshot{LacksStatus: map[string][]string{"NodePool": {"status.requested"}}}, "NodePool", status)
	if err != nil || !equality.Semantic.DeepEqual(want, got) {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestPrune_looks_under_every_key(t *testing.T) {
	fields := map[string]any{"by": map[string]any{"a": map[string]any{"lost": 1, "kept": 2}, "b": "text"}}
	prune(fields, []string{"by", "*", "lost"})
	if diff := cmp.Diff(map[string]any{"by": map[string]any{"a": map[string]any{"kept": 2}, "b": "text"}}, fields); diff != "" {
		t.Error(diff)
	}
}
