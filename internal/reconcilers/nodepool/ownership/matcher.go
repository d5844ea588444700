// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/lru"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Matcher decides which nodes belong to a pool. It costs much less than a View.
type Matcher struct {
	// Pool may be an object of a cache; it is not modified.
	Pool     *flotillav1.NodePool
	selector labels.Selector
}

// NewMatcher returns the matcher of a pool.
func NewMatcher(pool *flotillav1.NodePool) Matcher {
	return Matcher{Pool: pool, selector: selectorOf(pool)}
}

// Selector returns the selector of the nodes. A node that matches may still not belong to the pool; Matches decides.
func (m Matcher) Selector() labels.Selector { return m.selector }

// Matches reports whether the node belongs to the pool.
func (m Matcher) Matches(node *corev1.Node) bool {
	if isControlPlane(node) && !m.Pool.Spec.AllowControlPlane {
		return false
	}
	return m.selector.Matches(labels.Set(node.Labels))
}

// Concerns reports whether the node belongs to the pool or may carry its keys.
func (m Matcher) Concerns(node *corev1.Node) bool {
	return m.Matches(node) || mayRecord(node, m.Pool.Name)
}

// selectors caches compiled selectors by the *NodeSelector of a cached pool, which is never modified: each change of a node
// is matched against all pools.
var selectors = lru.New(1 << 14)

// selectorOf returns the compiled selector of a pool. A selector that is empty or invalid matches no node.
func selectorOf(pool *flotillav1.NodePool) labels.Selector {
	spec := pool.Spec.NodeSelector
	if spec == nil {
		return roleSelector(pool.Name)
	}
	if known, found := selectors.Get(spec); found {
		return known.(labels.Selector)
	}
	selector := compileSelector(spec)
	selectors.Add(spec, selector)
	return selector
}

// roleSelector selects the nodes with the role label of the pool, for pools without nodeSelector.
func roleSelector(poolName string) labels.Selector {
	return compileSelector(&flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{
		Key: flotillav1.NodeRolePrefix + poolName, Operator: metav1.LabelSelectorOpExists,
	}}})
}

func compileSelector(spec *flotillav1.NodeSelector) labels.Selector {
	if len(spec.MatchLabels) == 0 && len(spec.MatchExpressions) == 0 {
		return labels.Nothing()
	}
	converted := &metav1.LabelSelector{MatchLabels: make(map[string]string, len(spec.MatchLabels))}
	for k, v := range spec.MatchLabels {
		converted.MatchLabels[k] = string(v)
	}
	for _, r := range spec.MatchExpressions {
		converted.MatchExpressions = append(converted.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	selector, err := metav1.LabelSelectorAsSelector(converted)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

func isControlPlane(node *corev1.Node) bool {
	_, controlPlane := node.Labels[controlPlaneRole]
	_, master := node.Labels[masterRole]
	return controlPlane || master
}

// IsReady reports whether the Ready condition of the node is True.
func IsReady(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return node.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
