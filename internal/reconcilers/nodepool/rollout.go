// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
)

// haltPercent is how much of a pool may be not ready before no node gets another NoExecute taint.
const haltPercent = 20

// rollout says which nodes of a pool may get NoExecute taints now.
type rollout struct {
	// halted is set when too much of the pool is not ready.
	halted bool
	// turns are the names of the nodes whose turn it is.
	turns sets.Set[string]
	// pending is how many nodes lack a taint, those in turns included.
	pending int
}

// evicts reports whether the pool puts NoExecute taints on nodes.
func (v *view) evicts() bool {
	return slices.ContainsFunc(v.wishes, func(w wish) bool { return w.key.noExecute() })
}

// rolloutOf chooses the nodes, in order of their names, so that no more than maxUnavailable are unavailable at once.
// A node that is not ready has nothing more to lose and does not wait for the others.
func rolloutOf(v *view, nodes []corev1.Node, now time.Time) rollout {
	var total, notReady, unavailable int
	var waiting []string
	r := rollout{turns: sets.New[string]()}
	for i := range nodes {
		node := &nodes[i]
		if !v.matches(node) {
			continue
		}
		total++
		ready, pending := isReady(node), wantsEviction(v, node)
		if pending {
			r.pending++
		}
		switch {
		case !ready:
			notReady++
			unavailable++
			if pending {
				r.turns.Insert(node.Name)
			}
		case pending:
			waiting = append(waiting, node.Name)
		case evictedWithin(v, node, now):
			unavailable++
		}
	}
	if notReady*100 > total*haltPercent {
		r.halted, r.turns = true, nil
		return r
	}
	slices.Sort(waiting)
	free := max(0, maxUnavailable(v, total)-unavailable)
	r.turns.Insert(waiting[:min(free, len(waiting))]...)
	return r
}

// maxUnavailable is the budget of a pool with that many nodes; percentages are rounded up, as in other rollouts.
func maxUnavailable(v *view, total int) int {
	if v.pool.Spec.Rollout == nil || v.pool.Spec.Rollout.MaxUnavailable == nil {
		return 1
	}
	budget, err := intstr.GetScaledValueFromIntOrPercent(v.pool.Spec.Rollout.MaxUnavailable, total, true)
	if err != nil {
		return 1
	}
	return budget
}

// wantsEviction reports whether the node still lacks a NoExecute taint that the pool would put on.
func wantsEviction(v *view, node *corev1.Node) bool {
	for _, w := range v.wishes {
		if !w.key.noExecute() {
			continue
		}
		i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == w.key.name && t.Effect == w.key.effect })
		if i >= 0 && node.Spec.Taints[i].Value == w.value {
			continue
		}
		e, recorded := recordOf(node)[v.name]
		if w.once && recorded && !e.owed[w.key] {
			continue
		}
		if _, ours := e.items[w.key]; i < 0 || ours || v.overrides() {
			return true
		}
	}
	return false
}

// evictedWithin reports whether the node got a NoExecute taint of the pool less than minReadySeconds ago.
func evictedWithin(v *view, node *corev1.Node, now time.Time) bool {
	if v.pool.Spec.Rollout == nil || v.pool.Spec.Rollout.MinReadySeconds == 0 {
		return false
	}
	settled := time.Duration(v.pool.Spec.Rollout.MinReadySeconds) * time.Second
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.TimeAdded != nil && t.TimeAdded.Add(settled).After(now) && slices.ContainsFunc(v.wishes, func(w wish) bool {
			return w.key.noExecute() && w.key.name == t.Key && w.key.effect == t.Effect
		})
	})
}
