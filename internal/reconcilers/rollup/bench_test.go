// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// benchState is a hub object in 100 clusters, with the status that a pass has written, and the view of the next pass.
func benchState(kind Kind) (fleet.Object, *view) {
	hubObject := kind.New()
	hubObject.SetNamespace("shop")
	hubObject.SetName("web")
	hubObject.SetGeneration(7)
	switch object := hubObject.(type) {
	case *flotillav1.Redis:
		object.Spec.Placement = &flotillav1.Placement{All: true}
	case *flotillav1.NodePool:
		object.Spec.Placement = &flotillav1.Placement{All: true}
	}
	for i := range 100 {
		hubObject.GetFleetStatus().PlacedIn = append(hubObject.GetFleetStatus().PlacedIn, fmt.Sprintf("m-%03d", i))
	}
	seen := &view{}
	seen.begin(kind, hubObject)
	seen.template = "t1"
	for i := range 100 {
		name := fmt.Sprintf("m-%03d", i)
		seen.put(&cluster{
			Observation: fleet.Observation{
				Name: name, Fate: fleet.FateApply,
				Member: &fleet.Member{Name: name, Accepted: true, Serves: true, Decided: true, Visible: true, Writable: true},
				Copy: &fleet.Copy{
					Hash: "h", Rollout: "t1", Generation: 3, ObservedGeneration: 3, ChangedAt: noon,
					Ready: &metav1.Condition{Type: flotillav1.ConditionReady, Status: metav1.ConditionTrue},
				},
				Want: fleet.Effective{Hash: "h", Spec: map[string]any{"replicas": int64(3)}}, Outcome: fleet.Outcome{Generation: 7},
			},
			chosen: true, placed: true, numbers: benchNumbers(kind),
		})
	}
	report(kind, hubObject, state{view: seen, stale: seen.outdated(kind, hubObject)}, noon)
	return hubObject, seen
}

func benchNumbers(kind Kind) any {
	if kind.Name == fleet.Redis.Name {
		return redisNumbers{replicas: 3, ready: 3, updated: 3, asked: 3}
	}
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), "nvidia.com/gpu": resource.MustParse("8")}
	zones := []flotillav1.NodeGroup{{Name: "a", NodeCount: 4, ReadyNodes: 4}, {Name: "b", NodeCount: 4, ReadyNodes: 4}}
	return &nodePoolNumbers{status: statusApplied, counts: flotillav1.NodePoolCounts{
		NodeCount: 8, ReadyNodes: 8, UpdatedNodes: 8, Capacity: resources, Allocatable: resources, Schedulable: resources,
		Architectures: []flotillav1.NodeGroup{{Name: "arm64", NodeCount: 8, ReadyNodes: 8}}, Zones: zones,
	}}
}

// unchanged runs a pass that has nothing to write.
func unchanged(t testing.TB, kind Kind, before fleet.Object, seen *view) {
	after := kind.draft(before)
	report(kind, after, state{view: seen, stale: seen.outdated(kind, before)}, noon.Add(time.Hour))
	if !equality.Semantic.DeepEqual(kind.written(before), kind.written(after)) {
		t.Fatal("the status changes")
	}
}

// TestAllocations_when_nothing_changes limits the allocations of a pass for 100 clusters that has nothing to write.
func TestAllocations_when_nothing_changes(t *testing.T) {
	for _, tc := range []struct {
		kind Kind
		most float64
	}{{redisKind, 3_300}, {nodePoolKind, 6_400}} {
		before, seen := benchState(tc.kind)
		if got := testing.AllocsPerRun(20, func() { unchanged(t, tc.kind, before, seen) }); got > tc.most {
			t.Errorf("%s: %.0f allocations, want at most %.0f", tc.kind.Name, got, tc.most)
		}
	}
}

func BenchmarkReport_unchanged(b *testing.B) {
	for _, kind := range Kinds() {
		b.Run(kind.Name, func(b *testing.B) {
			before, seen := benchState(kind)
			b.ReportAllocs()
			for b.Loop() {
				unchanged(b, kind, before, seen)
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	for _, kind := range Kinds() {
		b.Run(kind.Name, func(b *testing.B) {
			hubObject, seen := benchState(kind)
			listed, _, _ := seen.listing()
			b.ReportAllocs()
			for b.Loop() {
				seen.ledger.sums.fill(hubObject, listed)
			}
		})
	}
}
