// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// liveHeap returns the size of the heap without garbage.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	stats := &runtime.MemStats{}
	runtime.ReadMemStats(stats)
	return stats.HeapAlloc
}

func TestInternNode_keeps_nothing_of_nodes_that_are_gone(t *testing.T) {
	for name, capacity := range map[string]func(version int) corev1.ResourceList{
		"many resources": func(version int) corev1.ResourceList {
			list := corev1.ResourceList{}
			for i := range 500 {
				list[corev1.ResourceName(fmt.Sprintf("example.com/device-%05d", i))] = *resource.NewQuantity(int64(version), resource.DecimalSI)
			}
			return list
		},
		"long names": func(version int) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceName(strings.Repeat("x", 64<<10)): *resource.NewQuantity(int64(version), resource.DecimalSI)}
		},
		"long quantities": func(version int) corev1.ResourceList {
			return corev1.ResourceList{"example.com/device": resource.MustParse(fmt.Sprint(version+1) + strings.Repeat("1", 20_000))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := liveHeap()
			for version := range 50 {
				node := &corev1.Node{}
				node.Status.Capacity, node.Status.Allocatable = capacity(version), capacity(version+1000)
				internNode(node)
				if got := node.Status.Capacity; len(got) != len(capacity(version)) {
					t.Fatalf("%d resources are left", len(got))
				}
			}
			if after := liveHeap(); after > before+1<<20 {
				t.Errorf("%d KiB are kept", (after-before)>>10)
			}
		})
	}
}
