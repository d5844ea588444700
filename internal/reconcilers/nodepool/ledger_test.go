// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func TestLedger(t *testing.T) {
	l, node, now := NewLedger(), nodeKey{memberName, "n1"}, ownershiptest.Now.Time
	at := rewrite{node, "u", labelKey}
	for i := range fightLimit {
		if l.fights.ongoing(at, now) {
			t.Fatalf("a fight after %d rewrites", i)
		}
		l.fights.add(at, now)
	}
	if !l.fights.ongoing(at, now) || l.fights.ongoing(rewrite{node, "another", labelKey}, now) || l.fights.ongoing(rewrite{node, "u", taintKey}, now) {
		t.Error("a fight is about one key of one node")
	}
	if l.fights.ongoing(at, now.Add(fightWindow)) {
		t.Error("a fight never ends")
	}
	pool, first := poolKey{memberName, "a"}, pass{at: now, uid: "u", generation: 1}
	next := first
	next.at = now.Add(300 * time.Millisecond)
	changed := next
	changed.generation = 2
	if wait := l.paces.begin(pool, first); wait != 0 {
		t.Errorf("the first pass waits %s", wait)
	}
	if wait := l.paces.begin(pool, next); wait != 700*time.Millisecond {
		t.Errorf("the second pass waits %s", wait)
	}
	if wait := l.paces.begin(pool, changed); wait != 0 {
		t.Errorf("a changed spec waits %s", wait)
	}
}

func TestLedger_forgets_what_is_gone(t *testing.T) {
	// remember makes every memory know something of a node and a pool of the member.
	remember := func(l *Ledger) {
		node, pool, now := nodeKey{memberName, "n1"}, poolKey{memberName, "a"}, ownershiptest.Now.Time
		l.fights.add(rewrite{node, "u", labelKey}, now)
		l.failures.set(node, ownership.Failure{Reason: flotillav1.ReasonApplyFailed, Message: "no"})
		l.paces.begin(pool, pass{at: now, uid: "u"})
		l.paces.writes.set(pool, now)
		l.paces.waiting.set(pool, true)
		l.inFlight.mayWriteFor(pool, "u")
		l.observeNode(node, ownershiptest.Node("n1", nil))
		l.news.add(pool, func(n *news) { n.left["n1"] = nodeNews{uid: types.UID("u")} })
		l.usages.claim(memberName, now)
		l.usages.set(memberName, ownership.Usage{At: now})
	}
	ofNodes := func(l *Ledger) int { return len(l.fights.values) + len(l.failures.values) }
	ofPools := func(l *Ledger) int {
		return len(l.paces.passes.values) + len(l.paces.writes.values) + len(l.paces.waiting.values) + len(l.inFlight.deletions) + len(l.news.values)
	}
	others := func(l *Ledger) int {
		return len(l.seen.byNode) + len(l.usages.byCluster) + len(l.usages.reading)
	}
	tests := map[string]struct {
		forget                 func(*Ledger)
		nodes, pools, leftOver int
	}{
		"nothing":        {func(*Ledger) {}, 2, 5, 2},
		"a node":         {func(l *Ledger) { l.forgetNode(nodeKey{memberName, "n1"}) }, 0, 5, 2},
		"a pool":         {func(l *Ledger) { l.forgetPool(poolKey{memberName, "a"}) }, 2, 0, 2},
		"a member":       {func(l *Ledger) { l.forgetCluster(memberName) }, 0, 0, 0},
		"another member": {func(l *Ledger) { l.forgetCluster("another") }, 2, 5, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := NewLedger()
			remember(l)
			tc.forget(l)
			if nodes, pools, rest := ofNodes(l), ofPools(l), others(l); nodes != tc.nodes || pools != tc.pools || rest != tc.leftOver {
				t.Errorf("got %d of nodes, %d of pools, %d others; want %d, %d, %d", nodes, pools, rest, tc.nodes, tc.pools, tc.leftOver)
			}
		})
	}
}
