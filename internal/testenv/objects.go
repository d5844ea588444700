// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Node creates a Node that is Ready and offers 4 CPUs, 16Gi of memory and 110 Pods. It is deleted at the end of the
// test, because Nodes have no namespace to keep tests apart.
func (c *Cluster) Node(t testing.TB, name string, labels map[string]string) *corev1.Node {
	t.Helper()
	ctx := context.Background()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := c.Client.Create(ctx, node); err != nil {
		t.Fatalf("creating node %q: %v", name, err)
	}
	t.Cleanup(func() { _ = c.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}) })
	// The API server taints every new Node as not ready, and a controller that does not run here would take that off.
	if len(node.Spec.Taints) > 0 {
		node.Spec.Taints = nil
		if err := c.Client.Update(ctx, node); err != nil {
			t.Fatalf("removing the not-ready taint of node %q: %v", name, err)
		}
	}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
	}}
	if err := c.Client.Status().Update(ctx, node); err != nil {
		t.Fatalf("making node %q ready: %v", name, err)
	}
	return node
}

// SecretFor returns a registration Secret of the cluster, to be created on a hub.
func SecretFor(cluster *Cluster, namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name,
			Labels:    map[string]string{flotillav1.LabelCluster: "true"},
		},
		Data: map[string][]byte{flotillav1.KeyKubeconfig: cluster.Kubeconfig()},
	}
}
