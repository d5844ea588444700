// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func TestFillNodePool_adds_up_what_Pods_ask_for(t *testing.T) {
	cpu := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	member := func(name string, nodes int32, requested corev1.ResourceList) row {
		r := row{entry: fleet.Entry{Visible: true}, shown: &nodePoolNumbers{
			counts: flotillav1.NodePoolCounts{NodeCount: nodes, Allocatable: cpu("4"), Requested: requested},
		}}
		r.entry.Name = name
		return r
	}
	tests := map[string]struct {
		rows        []row
		requested   string
		utilization int32
	}{
		"all know":                     {rows: []row{member("a", 1, cpu("1")), member("b", 1, cpu("2"))}, requested: "3", utilization: 37},
		"one has no nodes":             {rows: []row{member("a", 1, cpu("1")), member("b", 0, nil)}, requested: "1", utilization: 12},
		"one does not know, so nobody": {rows: []row{member("a", 1, cpu("1")), member("b", 1, nil)}},
		"nobody was asked":             {rows: []row{member("a", 1, nil)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := &flotillav1.NodePool{}
			sums := newNodePoolSums()
			for _, row := range tc.rows {
				sums.count(&row, 1)
			}
			sums.fill(pool, nil)
			requested, known := pool.Status.Requested[corev1.ResourceCPU]
			if known != (tc.requested != "") || known && requested.String() != tc.requested {
				t.Errorf("requested: got %v", pool.Status.Requested)
			}
			if got := pool.Status.Utilization[corev1.ResourceCPU]; got != tc.utilization || !known && pool.Status.Utilization != nil {
				t.Errorf("utilization: got %v", pool.Status.Utilization)
			}
		})
	}
}
