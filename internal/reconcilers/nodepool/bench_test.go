// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func BenchmarkReport_unchanged(b *testing.B) {
	pool := ownershiptest.Pool("a", everything)
	nodes := make([]corev1.Node, 0, 200)
	for i := range cap(nodes) {
		node := ownershiptest.Node(fmt.Sprintf("node-%04d", i), map[string]string{"zone": "a", corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3), corev1.LabelArchStable: "arm64"})
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7910m"), corev1.ResourceMemory: resource.MustParse("30Gi"), corev1.ResourcePods: resource.MustParse("110")}
		node.Status.Capacity = node.Status.Allocatable
		nodes = append(nodes, *node)
	}
	found, class := surveyOf(pool, nodes...), classOutcome{condition: metav1.Condition{Status: metav1.ConditionTrue, Reason: flotillav1.ReasonAllNodesUpdated}}
	report(pool, found, class, ownershiptest.Now.Time)
	b.ReportAllocs()
	for b.Loop() {
		after := pool.DeepCopy()
		report(after, found, class, ownershiptest.Now.Add(time.Hour))
		if !equality.Semantic.DeepEqual(pool, after) {
			b.Fatal(after.Status)
		}
	}
}
