// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
)

// intern lets equal strings of many objects share their bytes. They are collected when no object has them any more.
func intern(text string) string { return unique.Make(text).Value() }

// internNode shares what the Nodes of a fleet have in common: the keys and most values of labels, the keys of
// annotations, the names of resources, versions. That is a third of what a Node takes in the cache.
func internNode(node *corev1.Node) {
	node.Labels = internMap(node.Labels, func(value string) string {
		if value == node.Name {
			// The host name, which no other Node has.
			return node.Name
		}
		return intern(value)
	})
	node.Annotations = internMap(node.Annotations, func(value string) string { return value })
	node.Status.Capacity, node.Status.Allocatable = internResources(node.Status.Capacity), internResources(node.Status.Allocatable)
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		taint.Key, taint.Value, taint.Effect = intern(taint.Key), intern(taint.Value), corev1.TaintEffect(intern(string(taint.Effect)))
	}
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		condition.Type, condition.Status = corev1.NodeConditionType(intern(string(condition.Type))), corev1.ConditionStatus(intern(string(condition.Status)))
	}
	info := &node.Status.NodeInfo
	info.Architecture, info.KubeletVersion = intern(info.Architecture), intern(info.KubeletVersion)
}

// internMap copies a map into one that is no larger than it has to be.
func internMap(in map[string]string, value func(string) string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[intern(k)] = value(v)
	}
	return out
}

func internResources(in corev1.ResourceList) corev1.ResourceList {
	if len(in) == 0 {
		return nil
	}
	out := make(corev1.ResourceList, len(in))
	for name, quantity := range in {
		out[corev1.ResourceName(intern(string(name)))] = quantity
	}
	return out
}
