// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
)

// intern makes equal strings share their bytes, which are collected when no object references them.
func intern(text string) string { return unique.Make(text).Value() }

// internNode shares what Nodes have in common: keys and most values of labels, keys of annotations, resource lists and
// versions. That is half of the size of a cached Node.
func internNode(node *corev1.Node) {
	node.Labels = internMap(node.Labels, func(value string) string {
		if value == node.Name {
			// The host name is unique.
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

// internMap returns a copy of a map with interned keys and minimal size.
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

// keptResourceLists is the number of lists kept per generation; machines come in few sizes. A list that is evicted costs
// memory only if it is seen again.
const keptResourceLists = 512

// Longer lists, and lists with longer names or quantities, are not shared: they would stay in memory after their member
// has gone.
const (
	maxSharedResources = 32
	maxSharedText      = 128
)

// resourceLists shares equal resource lists between Nodes. Cached objects are never modified, so sharing is safe. Two
// generations bound the number of lists without tracking their order of use: a list that is seen moves to the young
// generation, and the old one is dropped when the young one is full.
type resourceLists struct {
	mu sync.Mutex
	// The fields below are guarded by mu.
	young, old map[string]corev1.ResourceList
}

// knownResources is shared by all members, because their machines have the same sizes.
var knownResources resourceLists

// share returns an equal list that may be shared, or the list itself if it is not worth sharing.
func (r *resourceLists) share(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	if !isShareable(list) {
		return list
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

// isShareable reports whether a list is small.
func isShareable(list corev1.ResourceList) bool {
	if len(list) > maxSharedResources {
		return false
	}
	for name, quantity := range list {
		if len(name) > maxSharedText || len(quantity.String()) > maxSharedText {
			return false
		}
	}
	return true
}

// resourcesKey returns a key that is equal for lists of equal names, amounts and formats.
func resourcesKey(list corev1.ResourceList) string {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		key.WriteString(string(name) + "=" + quantity.String() + "/" + string(quantity.Format) + "\n")
	}
	return key.String()
}
