// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Object is a hub object or a copy.
type Object interface {
	runtime.Object
	flotillav1.Placeable
}

// ObjectList is a list of Objects.
type ObjectList interface {
	runtime.Object
	metav1.ListInterface
}

// Kind is what placement and roll-up need to know about a kind that is placed.
type Kind struct {
	// Name of the kind, and of its CRD.
	Name, CRD string
	// New returns an empty object, and NewList an empty list.
	New     func() Object
	NewList func() ObjectList
	// Items returns what is in a list.
	Items func(ObjectList) []Object
	// Spec points to the spec of an object.
	Spec func(Object) any
	// ObservedGeneration returns the generation that the status of an object is about.
	ObservedGeneration func(Object) int64
	// Entries returns the published list of clusters of a hub object, without the numbers of the kind.
	Entries func(Object) []flotillav1.ClusterStatus
	// HoldsData reports whether something is lost with a copy that goes.
	HoldsData bool
}

// Redis and NodePool are the kinds that are placed.
var (
	Redis = Kind{
		Name:    "Redis",
		CRD:     "redises." + flotillav1.GroupVersion.Group,
		New:     func() Object { return &flotillav1.Redis{} },
		NewList: func() ObjectList { return &flotillav1.RedisList{} },
		Items:   func(list ObjectList) []Object { return pointers(list.(*flotillav1.RedisList).Items) },
		Spec:    func(object Object) any { return &object.(*flotillav1.Redis).Spec },

		ObservedGeneration: func(object Object) int64 { return object.(*flotillav1.Redis).Status.ObservedGeneration },
		Entries: func(object Object) []flotillav1.ClusterStatus {
			var entries []flotillav1.ClusterStatus
			for _, entry := range object.(*flotillav1.Redis).Status.Clusters {
				entries = append(entries, entry.ClusterStatus)
			}
			return entries
		},
		HoldsData: true,
	}
	NodePool = Kind{
		Name:    "NodePool",
		CRD:     "nodepools." + flotillav1.GroupVersion.Group,
		New:     func() Object { return &flotillav1.NodePool{} },
		NewList: func() ObjectList { return &flotillav1.NodePoolList{} },
		Items:   func(list ObjectList) []Object { return pointers(list.(*flotillav1.NodePoolList).Items) },
		Spec:    func(object Object) any { return &object.(*flotillav1.NodePool).Spec },

		ObservedGeneration: func(object Object) int64 { return object.(*flotillav1.NodePool).Status.ObservedGeneration },
		Entries: func(object Object) []flotillav1.ClusterStatus {
			var entries []flotillav1.ClusterStatus
			for _, entry := range object.(*flotillav1.NodePool).Status.Clusters {
				entries = append(entries, entry.ClusterStatus)
			}
			return entries
		},
	}
)

func pointers[T any, P interface {
	*T
	Object
}](items []T) []Object {
	objects := make([]Object, 0, len(items))
	for i := range items {
		objects = append(objects, P(&items[i]))
	}
	return objects
}
