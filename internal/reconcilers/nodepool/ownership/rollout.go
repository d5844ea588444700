// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
)

// HaltPercent is the share of not-ready nodes in a pool above which no node receives another NoExecute taint.
const HaltPercent = 20

// Rollout is which nodes of a pool may receive NoExecute taints now.
type Rollout struct {
	// Halted is set when too many nodes of the pool are not ready.
	Halted bool
	// Turns are the names of the nodes whose turn it is.
	Turns sets.Set[string]
	// Pending is how many nodes lack a taint, including those in Turns.
	Pending int
}

// evicts reports whether the pool puts NoExecute taints on nodes.
func (v *View) evicts() bool {
	return slices.ContainsFunc(v.desired, func(d desiredKey) bool { return d.key.noExecute() })
}

// RolloutOf selects nodes in order of their names so that at most maxUnavailable are unavailable at a time. A node that is
// not ready is unavailable anyway and does not wait for the others.
func RolloutOf(v *View, nodes []corev1.Node, now time.Time) Rollout {
	var total, notReady, unavailable int
	var waiting []string
	r := Rollout{Turns: sets.New[string]()}
	for i := range nodes {
		node := &nodes[i]
		if !v.Matches(node) {
			continue
		}
		total++
		ready, pending := IsReady(node), v.lacksEviction(node)
		if pending {
			r.Pending++
		}
		switch {
		case !ready:
			notReady++
			unavailable++
			if pending {
				r.Turns.Insert(node.Name)
			}
		case pending:
			waiting = append(waiting, node.Name)
		case v.evictedRecently(node, now):
			unavailable++
		}
	}
	if notReady*100 > total*HaltPercent {
		r.Halted, r.Turns = true, nil
		return r
	}
	slices.Sort(waiting)
	free := max(0, v.maxUnavailable(total)-unavailable)
	r.Turns.Insert(waiting[:min(free, len(waiting))]...)
	return r
}

// maxUnavailable is the budget of a pool with that many nodes. Percentages are rounded up, as in other rollouts.
func (v *View) maxUnavailable(total int) int {
	rollout := v.Pool.Spec.Rollout
	if rollout == nil || rollout.MaxUnavailable == nil {
		return 1
	}
	budget, err := intstr.GetScaledValueFromIntOrPercent(rollout.MaxUnavailable, total, true)
	if err != nil {
		return 1
	}
	return budget
}

// lacksEviction reports whether the node still lacks a NoExecute taint that the pool would put on.
func (v *View) lacksEviction(node *corev1.Node) bool {
	for _, d := range v.desired {
		if !d.key.noExecute() {
			continue
		}
		i := slices.IndexFunc(node.Spec.Taints, d.key.names)
		if i >= 0 && node.Spec.Taints[i].Value == d.value {
			continue
		}
		e, recorded := recordOf(node)[v.Pool.Name]
		if d.once && recorded && !e.owed[d.key] {
			continue
		}
		if _, ours := e.items[d.key]; i < 0 || ours || v.overrides() {
			return true
		}
	}
	return false
}

// evictedRecently reports whether the node received a NoExecute taint of the pool less than minReadySeconds ago.
func (v *View) evictedRecently(node *corev1.Node, now time.Time) bool {
	if v.Pool.Spec.Rollout == nil || v.Pool.Spec.Rollout.MinReadySeconds == 0 {
		return false
	}
	minReady := time.Duration(v.Pool.Spec.Rollout.MinReadySeconds) * time.Second
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.TimeAdded != nil && t.TimeAdded.Add(minReady).After(now) && slices.ContainsFunc(v.desired, func(d desiredKey) bool {
			return d.key.noExecute() && d.key.names(t)
		})
	})
}
