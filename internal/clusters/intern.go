// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
)

// intern lets equal strings of many objects share their bytes. They are collected when no object has them any more.
func intern(text string) string { return unique.Make(text).Value() }

// internNode shares what the Nodes of a fleet have in common: the keys and most values of labels, the keys of
// annotations, the lists of resources, versions. That is half of what a Node takes in the cache.
func internNode(node *corev1.Node) {
	node.Labels = internMap(node.Labels, func(value string) string {
		if value == node.Name {
			// The host name, which no other Node has.
			return node.Name
		}
		return intern(value)
	})
	node.Annotations = internMap(node.Annotations, func(value string) string { return value })
	node.Status.Capacity, node.Status.Allocatable = knownResources.share(node.Status.Capacity), knownResources.share(node.Status.Allocatable)
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

// keptResourceLists is how many lists of a generation are kept to be shared: machines come in few sizes. A list that
// falls out only costs memory when it is seen again.
const keptResourceLists = 512

// resourceLists lets Nodes of one size share their lists of resources. What comes out of a cache is never changed in
// place, so that sharing cannot be seen. Two generations bound what is kept without an order of use: whoever is seen
// moves to the young one, and the old one goes when the young one is full.
type resourceLists struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	young, old map[string]corev1.ResourceList
}

// knownResources is one for all members: their machines are of the same sizes.
var knownResources resourceLists

// share returns an equal list, which others may hold as well.
func (r *resourceLists) share(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	key := resourcesKey(list)
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.young[key]; ok {
		return known
	}
	known, ok := r.old[key]
	if !ok {
		known = make(corev1.ResourceList, len(list))
		for name, quantity := range list {
			known[corev1.ResourceName(intern(string(name)))] = quantity
		}
	}
	if r.young == nil || len(r.young) >= keptResourceLists {
		r.young, r.old = map[string]corev1.ResourceList{}, r.young
	}
	r.young[key] = known
	return known
}

// resourcesKey says which list it is, in the words of the API: equal keys, equal amounts and formats.
func resourcesKey(list corev1.ResourceList) string {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		key.WriteString(string(name) + "=" + quantity.String() + "/" + string(quantity.Format) + "\n")
	}
	return key.String()
}
