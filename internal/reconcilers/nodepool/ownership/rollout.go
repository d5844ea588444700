// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// Waits are the times until the turns of the other nodes at the earliest, by name, where time is what they wait for.
	Waits map[string]time.Duration
	// Pending is how many nodes lack a taint, including those in Turns.
	Pending int
}

// evicts reports whether the pool puts NoExecute taints on nodes.
func (v *View) evicts() bool {
	return slices.ContainsFunc(v.desired, func(d desiredKey) bool { return d.key.noExecute() })
}

// RolloutOf selects nodes in order of their names so that at most maxUnavailable are unavailable at a time. A node that is
// not ready is unavailable anyway, and nothing has run for long on one that is younger than the pause: neither waits for
// the others.
func RolloutOf(v *View, nodes []corev1.Node, now time.Time) Rollout {
	var total, notReady, unavailable int
	var waiting []string
	// soonest is the time until the first of the nodes that were tainted counts as available.
	var soonest time.Duration
	pause := v.Pool.Spec.Rollout.Pause()
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
		case pending && now.Sub(node.CreationTimestamp.Time) < pause:
			r.Turns.Insert(node.Name)
		case pending:
			waiting = append(waiting, node.Name)
		default:
			if rest := v.evictedAt(node, pause).Add(pause).Sub(now); rest > 0 {
				unavailable++
				if soonest == 0 || rest < soonest {
					soonest = rest
				}
			}
		}
	}
	if notReady*100 > total*HaltPercent {
		r.Halted, r.Turns = true, nil
		return r
	}
	slices.Sort(waiting)
	budget := v.Pool.Spec.Rollout.Budget(total)
	free := min(max(0, budget-unavailable), len(waiting))
	r.Turns.Insert(waiting[:free]...)
	r.Waits = waits(waiting[free:], budget, soonest, pause)
	return r
}

// waits returns how long each of the nodes waits at least, if as many as the budget get their taints with each pause.
// soonest is when the first of those that have theirs are done; 0 means that those begin now that precede the nodes.
func waits(nodes []string, budget int, soonest, pause time.Duration) map[string]time.Duration {
	if budget == 0 || pause == 0 {
		return nil
	}
	if soonest == 0 {
		soonest = pause
	}
	at := make(map[string]time.Duration, len(nodes))
	for i, name := range nodes {
		at[name] = soonest + time.Duration(i/budget)*pause
	}
	return at
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

// evictedAt returns when the node received the last of the NoExecute taints that the pool sets, or zero. Those that it
// received while it was younger than the pause evicted nothing that others wait for.
func (v *View) evictedAt(node *corev1.Node, pause time.Duration) time.Time {
	var at time.Time
	for _, t := range node.Spec.Taints {
		if t.TimeAdded == nil || t.TimeAdded.Sub(node.CreationTimestamp.Time) < pause || t.TimeAdded.Time.Before(at) {
			continue
		}
		if slices.ContainsFunc(v.desired, func(d desiredKey) bool { return d.key.noExecute() && d.key.names(t) }) {
			at = t.TimeAdded.Time
		}
	}
	return at
}
