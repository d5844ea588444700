// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// maxAttention is the number of objects that a MemberCluster lists because they are not ready or orphaned.
	maxAttention = 20
	// MaxOrphans is the number of orphaned copies that it lists: all of them, up to what fits into an object.
	MaxOrphans = 1000
)

// AttentionKey returns the key of the object that an item describes; a copy has the name of its hub object.
func AttentionKey(item flotillav1.Attention) ObjectKey {
	return ObjectKey{Kind: item.Kind, Object: types.NamespacedName{Namespace: item.Namespace, Name: item.Name}}
}

// IsOrphan reports whether an item describes a released copy.
func IsOrphan(item flotillav1.Attention) bool { return item.Reason == flotillav1.ReasonOrphaned }

// CutAttention sorts items and truncates them to what a MemberCluster lists: every orphaned copy, because the list is the
// only record of them, and then the objects that have not been ready for longest, up to 20 in total.
func CutAttention(items []flotillav1.Attention) []flotillav1.Attention {
	rank := map[bool]int{true: 0, false: 1}
	slices.SortFunc(items, func(a, b flotillav1.Attention) int {
		return cmp.Or(cmp.Compare(rank[IsOrphan(a)], rank[IsOrphan(b)]), compareSince(a.Since, b.Since),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	orphans := 0
	for _, item := range items {
		if IsOrphan(item) {
			orphans++
		}
	}
	return items[:min(len(items), max(maxAttention, min(orphans, MaxOrphans)))]
}

// compareSince orders an unknown time last: such an object is new.
func compareSince(a, b *metav1.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(b.Time)
}
