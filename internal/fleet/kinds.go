// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

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

// Kind describes a kind that is placed.
type Kind struct {
	// Name of the kind, and of its CRD.
	Name, CRD string
	// New returns an empty object, and NewList an empty list.
	New     func() Object
	NewList func() ObjectList
	// Items returns the items of a list.
	Items func(ObjectList) []Object
	// Spec returns a pointer to the spec of an object.
	Spec func(Object) any
	// ObservedGeneration returns the observed generation of an object.
	ObservedGeneration func(Object) int64
	// Entries returns the published entries of a hub object, without the fields that are specific to the kind.
	Entries func(Object) []flotillav1.ClusterStatus
	// Idle reports whether the spec of an object makes its reconciler only observe.
	Idle func(Object) bool
	// UnreadyNodes returns how many nodes of an object are not ready; nil if it has none.
	UnreadyNodes func(Object) int
	// Pace returns how long the reconcilers of the member may take for a change of the object because they go slowly; nil
	// if they do not.
	Pace func(Object) time.Duration
	// HoldsData reports whether data is lost with a copy.
	HoldsData bool
}

// Redis and NodePool are the kinds that are placed.
var (
	Redis = Kind{
		Name:    flotillav1.KindRedis,
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
		Idle:      func(object Object) bool { return object.(*flotillav1.Redis).Spec.Paused },
		HoldsData: true,
	}
	NodePool = Kind{
		Name:    flotillav1.KindNodePool,
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
		Idle: func(object Object) bool {
			spec := &object.(*flotillav1.NodePool).Spec
			return spec.Paused || spec.DryRun
		},
		UnreadyNodes: func(object Object) int {
			status := &object.(*flotillav1.NodePool).Status
			return int(status.NodeCount - status.ReadyNodes)
		},
		Pace: func(object Object) time.Duration {
			pool := object.(*flotillav1.NodePool)
			nodes := int(pool.Status.NodeCount)
			budget := pool.Spec.Rollout.Budget(nodes)
			evicts := slices.ContainsFunc(pool.Spec.Taints, func(t flotillav1.NodePoolTaint) bool { return t.Effect == corev1.TaintEffectNoExecute })
			if !evicts || budget == 0 {
				return 0
			}
			return time.Duration((nodes+budget-1)/budget) * pool.Spec.Rollout.Pause()
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

// Command returns a command of the kubectl plugin about an object, which can be pasted.
func Command(name, kind string, key types.NamespacedName) string {
	command := "kubectl flotilla " + name + " " + strings.ToLower(kind) + "/" + key.Name
	if key.Namespace != "" {
		command += " -n " + key.Namespace
	}
	return command
}

// KindNames are the names of the kinds that are placed.
var KindNames = []string{Redis.Name, NodePool.Name}
