// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestNodePool_Columns shows an emptied pool and a full one of a member, and one of a hub, as kubectl get and
// kubectl get -o wide do.
func TestNodePool_Columns(t *testing.T) {
	resources := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	ready := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}}
	}
	for name, tc := range map[string]struct {
		spec         flotillav1.NodePoolSpec
		status       flotillav1.NodePoolStatus
		narrow, wide map[string]any
	}{
		"columns-empty": {
			status: flotillav1.NodePoolStatus{
				NodePoolCounts: flotillav1.NodePoolCounts{Allocatable: resources("0", "0")}, Status: 200,
				Conditions: ready(metav1.ConditionTrue, "NoMatchingNodes", "No node matches"),
			},
			narrow: map[string]any{"Status": 200., "NodeCount": 0., "Ready": 0., "Updated": 0., "CPU": "0", "Memory": "0", "Clusters": nil, "Unknown": nil},
			wide: map[string]any{
				"Conflicts": 0., "CPU%": nil, "Memory%": nil, "Weight": nil, "Handler": nil, "Reason": "NoMatchingNodes", "Message": "No node matches",
			},
		},
		"columns-member": {
			spec: flotillav1.NodePoolSpec{
				NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/gpu": "yes"}}, Weight: 3, Handler: "runc",
			},
			status: flotillav1.NodePoolStatus{
				NodePoolCounts: flotillav1.NodePoolCounts{
					NodeCount: 5, ReadyNodes: 4, UpdatedNodes: 5, ConflictingNodes: 1, Allocatable: resources("20", "64Gi"),
					Utilization: map[corev1.ResourceName]int32{corev1.ResourceCPU: 37, corev1.ResourceMemory: 81},
				},
				Status: 409, Conditions: ready(metav1.ConditionFalse, "KeyConflict", "1 node has another value"),
			},
			narrow: map[string]any{"Status": 409., "NodeCount": 5., "Ready": 4., "Updated": 5., "CPU": "20", "Memory": "64Gi", "Clusters": nil, "Unknown": nil},
			wide: map[string]any{
				"Conflicts": 1., "CPU%": 37., "Memory%": 81., "Weight": 3., "Handler": "runc", "Reason": "KeyConflict", "Message": "1 node has another value",
			},
		},
		"columns-hub": {
			spec: flotillav1.NodePoolSpec{Placement: &flotillav1.Placement{Clusters: []string{"eu-1", "eu-2"}}},
			status: flotillav1.NodePoolStatus{
				NodePoolCounts: flotillav1.NodePoolCounts{NodeCount: 6, ReadyNodes: 6, UpdatedNodes: 6, Allocatable: resources("24", "96Gi")},
				FleetStatus:    flotillav1.FleetStatus{ClusterCounts: &flotillav1.ClusterCounts{Desired: 2, Applied: 1, Ready: 1, Unknown: 1}},
				Status:         206, Conditions: ready(metav1.ConditionTrue, "Ready", "1 of 2 clusters"),
			},
			narrow: map[string]any{"Status": 206., "NodeCount": 6., "Ready": 6., "Updated": 6., "CPU": "24", "Memory": "96Gi", "Clusters": 2., "Unknown": 1.},
			wide: map[string]any{
				"Conflicts": 0., "CPU%": nil, "Memory%": nil, "Weight": nil, "Handler": nil, "Reason": "Ready", "Message": "1 of 2 clusters",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tc.spec}
			if err := server.Client.Create(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Client.Delete(context.Background(), pool) })
			pool.Status = tc.status
			if err := server.Client.Status().Update(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			tc.narrow["Name"] = name
			if diff := cmp.Diff(map[int32]map[string]any{0: tc.narrow, 1: tc.wide}, columns(t, "nodepools/"+name)); diff != "" {
				t.Errorf("columns differ (-want +got):\n%s", diff)
			}
		})
	}
}

// columns returns the one row that kubectl prints for an object, by priority and without the age.
func columns(t *testing.T, path string) map[int32]map[string]any {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := client.RESTClient().Get().AbsPath("/apis/flotilla.dev/v1alpha1/"+path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("reading the table of %d rows: %v", len(table.Rows), err)
	}
	shown := map[int32]map[string]any{0: {}, 1: {}}
	for i, column := range table.ColumnDefinitions {
		if column.Name != "Age" {
			shown[column.Priority][column.Name] = table.Rows[0].Cells[i]
		}
	}
	return shown
}
