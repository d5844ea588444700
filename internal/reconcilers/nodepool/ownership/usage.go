// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// usageStep is the change, in percent of allocatable, from which on status.requested is updated. Pods come and go all the
// time, and status must not change each time.
const usageStep = 1

// Usage is what the Pods of a member request. In the zero value nothing is known yet.
type Usage struct {
	// At is when the Pods were last read.
	At time.Time
	// ByNode is what was last read; it is not modified afterwards.
	ByNode Requests
	// Failure is why the last attempt to read failed.
	Failure Failure
}

// publish returns the requests to publish for a pool. While they are unknown, the last ones stay.
func (u *Usage) publish(before, requested, allocatable corev1.ResourceList) corev1.ResourceList {
	if u.ByNode == nil || u.Failure != (Failure{}) {
		return before
	}
	return damped(before, bounded(requested), allocatable)
}

// damped returns what was published before if no value has changed by usageStep or more, and what was measured otherwise.
func damped(before, measured, allocatable corev1.ResourceList) corev1.ResourceList {
	if len(before) != len(measured) {
		return measured
	}
	for name, now := range measured {
		was, ok := before[name]
		if !ok || was.IsZero() != now.IsZero() {
			return measured
		}
		whole := allocatable[name]
		off := was.AsApproximateFloat64() - now.AsApproximateFloat64()
		if 100*max(off, -off) >= usageStep*whole.AsApproximateFloat64() && off != 0 {
			return measured
		}
	}
	return before
}

// Requests are the summed requests of Pods, by node name.
type Requests map[string]corev1.ResourceList

// Add adds the requests of a Pod to those of its node.
func (r Requests) Add(pod *corev1.Pod) {
	if r[pod.Spec.NodeName] == nil {
		r[pod.Spec.NodeName] = corev1.ResourceList{}
	}
	addResources(r[pod.Spec.NodeName], requestsOf(&pod.Spec))
}

// requestsOf returns what the scheduler reserves for a Pod, and the Pod itself: its containers and sidecars together, or the
// largest init container with the sidecars started before it, whichever is more. Requests of the Pod as a whole replace
// those, and overhead is added.
func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	total, sidecars, starting := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		addResources(total, spec.Containers[i].Resources.Requests)
	}
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		needed := corev1.ResourceList{}
		addResources(needed, container.Resources.Requests)
		addResources(needed, sidecars)
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addResources(sidecars, container.Resources.Requests)
			addResources(total, container.Resources.Requests)
		}
		raise(starting, needed)
	}
	raise(total, starting)
	if spec.Resources != nil {
		maps.Copy(total, spec.Resources.Requests)
	}
	addResources(total, spec.Overhead)
	total[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return total
}

// raise increases each quantity to at least that of the other list.
func raise(list, least corev1.ResourceList) {
	for name, quantity := range least {
		if current, ok := list[name]; !ok || current.Cmp(quantity) < 0 {
			list[name] = quantity
		}
	}
}
