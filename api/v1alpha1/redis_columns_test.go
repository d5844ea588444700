// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestRedis_Columns(t *testing.T) {
	namespace := server.Namespace(t)
	redis := newRedis(func(r *flotillav1.Redis) { r.Namespace = namespace })
	if err := server.Client.Create(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	redis.Status = flotillav1.RedisStatus{
		ReadyReplicas: 2, DesiredReplicas: 3, Primary: "cache-0",
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "ReplicasNotReady", Message: "2 of 3 Pods are Ready", LastTransitionTime: metav1.Now(),
		}},
	}
	if err := server.Client.Status().Update(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	want := map[int32]map[string]any{
		0: {
			"Name": "cache", "Ready": "False", "Desired": float64(3), "Replicas": float64(2), "Primary": "cache-0", "Reason": "ReplicasNotReady",
			"Clusters": nil, "ClustersReady": nil, "Unknown": nil,
		},
		1: {"Mode": "Replication", "Failovers": nil, "Image": "redis:8.2", "Message": "2 of 3 Pods are Ready"},
	}
	if diff := cmp.Diff(want, columns(t, "namespaces/"+namespace+"/redises/"+redis.Name)); diff != "" {
		t.Errorf("columns differ (-want +got):\n%s", diff)
	}
}
