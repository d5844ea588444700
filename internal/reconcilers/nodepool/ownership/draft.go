// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// draft is a node with the changes planned so far. The Node itself is not modified.
type draft struct {
	node                            *corev1.Node
	now                             metav1.Time
	labelChanges, annotationChanges map[string]*string
	// taints is a copy in which foreign taints keep their place, value and time.
	taints        []corev1.Taint
	taintsChanged bool
}

func newDraft(node *corev1.Node, now time.Time) *draft {
	return &draft{
		node: node, now: metav1.NewTime(now),
		labelChanges: map[string]*string{}, annotationChanges: map[string]*string{},
		taints: slices.Clone(node.Spec.Taints),
	}
}

// get returns the value of the key, or nil if it is not there.
func (d *draft) get(k Key) *string {
	values, changes := d.node.Labels, d.labelChanges
	switch k.Kind {
	case Taint:
		if i := slices.IndexFunc(d.taints, k.names); i >= 0 {
			value := d.taints[i].Value
			return &value
		}
		return nil
	case Annotation:
		values, changes = d.node.Annotations, d.annotationChanges
	}
	if change, ok := changes[k.Name]; ok {
		return change
	}
	if value, ok := values[k.Name]; ok {
		return &value
	}
	return nil
}

func (d *draft) set(k Key, value string) {
	switch k.Kind {
	case Label:
		d.labelChanges[k.Name] = &value
	case Annotation:
		d.annotationChanges[k.Name] = &value
	case Taint:
		d.taintsChanged = true
		if i := slices.IndexFunc(d.taints, k.names); i >= 0 {
			d.taints[i].Value = value
			return
		}
		taint := corev1.Taint{Key: k.Name, Value: value, Effect: k.Effect}
		if k.noExecute() {
			// Tolerations with a time limit count from here.
			taint.TimeAdded = &d.now
		}
		d.taints = append(d.taints, taint)
	}
}

func (d *draft) remove(k Key) {
	switch k.Kind {
	case Label:
		d.labelChanges[k.Name] = nil
	case Annotation:
		d.annotationChanges[k.Name] = nil
	case Taint:
		d.taintsChanged = true
		d.taints = slices.DeleteFunc(d.taints, k.names)
		if len(d.taints) == 0 {
			d.taints = nil
		}
	}
}
