// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownershiptest builds nodes, pools and requests for tests.
package ownershiptest

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
)

// Now is the time in tests.
var Now = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// Node returns a node that is ready.
func Node(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Labels: maps.Clone(labels)},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// Pool returns a pool that selects zone=a.
func Pool(name string, change func(*flotillav1.NodePoolSpec)) *flotillav1.NodePool {
	pool := &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec:       flotillav1.NodePoolSpec{NodeSelector: Zone("a")},
	}
	if change != nil {
		change(&pool.Spec)
	}
	return pool
}

// Zone selects the nodes of a zone. A selector must not be modified; replace it.
func Zone(name flotillav1.LabelValue) *flotillav1.NodeSelector {
	return &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"zone": name}}
}

// Wants returns a change of a spec that sets one key of a kind.
func Wants(k ownership.Key, value string) func(*flotillav1.NodePoolSpec) {
	return func(spec *flotillav1.NodePoolSpec) {
		switch k.Kind {
		case ownership.Label:
			spec.Labels = map[string]flotillav1.LabelValue{k.Name: flotillav1.LabelValue(value)}
		case ownership.Annotation:
			spec.Annotations = map[string]flotillav1.AnnotationValue{k.Name: flotillav1.AnnotationValue(value)}
		case ownership.Taint:
			spec.Taints = []flotillav1.NodePoolTaint{{Key: k.Name, Value: value, Effect: k.Effect}}
		}
	}
}

// Amounts parses "cpu=1 memory=2Gi".
func Amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for pair := range strings.FieldsSeq(text) {
		name, quantity, _ := strings.Cut(pair, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return list
}

// Requesting returns a container that requests amounts.
func Requesting(amounts string) corev1.Container {
	return corev1.Container{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: Amounts(amounts)}}
}
