// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// liveNode is the node with the changes planned so far. The Node it was made from stays as it is.
type liveNode struct {
	node                            *corev1.Node
	now                             metav1.Time
	labelChanges, annotationChanges map[string]*string
	// taints is a copy: foreign taints keep their place, value and time.
	taints        []corev1.Taint
	taintsChanged bool
}

func newLiveNode(node *corev1.Node, now metav1.Time) *liveNode {
	return &liveNode{
		node: node, now: now,
		labelChanges: map[string]*string{}, annotationChanges: map[string]*string{},
		taints: slices.Clone(node.Spec.Taints),
	}
}

// get returns the value of the key, and whether it is there.
func (l *liveNode) get(k key) (string, bool) {
	values, changes := l.node.Labels, l.labelChanges
	switch k.kind {
	case kindTaint:
		if i := l.taint(k); i >= 0 {
			return l.taints[i].Value, true
		}
		return "", false
	case kindAnnotation:
		values, changes = l.node.Annotations, l.annotationChanges
	}
	if change, ok := changes[k.name]; ok {
		if change == nil {
			return "", false
		}
		return *change, true
	}
	value, ok := values[k.name]
	return value, ok
}

// value returns the value of the key, nil for none.
func (l *liveNode) value(k key) *string {
	value, present := l.get(k)
	if !present {
		return nil
	}
	return &value
}

func (l *liveNode) set(k key, value string) {
	switch k.kind {
	case kindLabel:
		l.labelChanges[k.name] = &value
	case kindAnnotation:
		l.annotationChanges[k.name] = &value
	case kindTaint:
		l.taintsChanged = true
		if i := l.taint(k); i >= 0 {
			l.taints[i].Value = value
			return
		}
		taint := corev1.Taint{Key: k.name, Value: value, Effect: k.effect}
		if k.noExecute() {
			// Tolerations with a time limit count from here.
			taint.TimeAdded = &l.now
		}
		l.taints = append(l.taints, taint)
	}
}

func (l *liveNode) remove(k key) {
	switch k.kind {
	case kindLabel:
		l.labelChanges[k.name] = nil
	case kindAnnotation:
		l.annotationChanges[k.name] = nil
	case kindTaint:
		l.taintsChanged = true
		l.taints = slices.DeleteFunc(l.taints, func(t corev1.Taint) bool { return t.Key == k.name && t.Effect == k.effect })
		if len(l.taints) == 0 {
			l.taints = nil
		}
	}
}

func (l *liveNode) taint(k key) int {
	return slices.IndexFunc(l.taints, func(t corev1.Taint) bool { return t.Key == k.name && t.Effect == k.effect })
}
