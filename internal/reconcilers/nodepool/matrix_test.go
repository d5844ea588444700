// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// cell is one situation of a key on a node in pool "a", which wants it to be "x".
type cell struct {
	name string
	// before is what was on the node before the pool; "<none>" for nothing.
	before string
	policy string
	// then happens after the pool has been applied once; nil for nothing.
	then func(w *world, k key)
	// during is on the node after that, afterwards once the pool has been deleted.
	during, afterwards string
	// changes, conflicts, fights and healed are what the last pass says of the key: the verb of its change, if any, and
	// how often it is named.
	change                    string
	conflicts, fights, healed int
	// written is the value that the record says; empty when the pool holds nothing. was is what others wrote, "<none>"
	// for nothing.
	written, was string
}

const absent = "<none>"

// cells are the behaviours of one key. Each has a value before, during and after the pool, and what is told of it.
var cells = []cell{
	{name: "add", before: absent, during: "x", afterwards: absent, change: "add", written: "x", was: absent},
	{
		name: "change", before: absent, then: func(w *world, k key) { wants(k, "y")(&w.pools["a"].Spec) },
		during: "y", afterwards: absent, change: "change", written: "y", was: absent,
	},
	{
		name: "remove", before: absent, then: func(w *world, k key) { unwant(k, &w.pools["a"].Spec) },
		during: absent, afterwards: absent, change: "remove",
	},
	{
		name: "drift", before: absent, then: func(w *world, k key) { w.put(k, "z") },
		during: "x", afterwards: "z", change: "put back", healed: 1, written: "x", was: "z",
	},
	{name: "adopt", before: "x", during: "x", afterwards: "x", written: "x", was: "x"},
	{
		name: "conflict Preserve", before: "old", policy: flotillav1.NodeConflictPolicyPreserve,
		during: "old", afterwards: "old", conflicts: 1,
	},
	{
		name: "conflict Override", before: "old", policy: flotillav1.NodeConflictPolicyOverride,
		during: "x", afterwards: "old", change: "override", written: "x", was: "old",
	},
	{
		name: "restore", before: "old", policy: flotillav1.NodeConflictPolicyOverride,
		then:   func(w *world, k key) { unwant(k, &w.pools["a"].Spec) },
		during: "old", afterwards: "old", change: "restore",
	},
	{
		name: "fight", before: absent,
		then: func(w *world, k key) {
			w.put(k, "z")
			w.fought = func(got key) bool { return got == k }
		},
		during: "z", afterwards: "z", fights: 1, written: "x", was: absent,
	},
}

// unwant takes the key out of a spec and leaves the pool something else to hold.
func unwant(k key, spec *flotillav1.NodePoolSpec) {
	switch k.kind {
	case kindLabel:
		delete(spec.Labels, k.name)
	case kindAnnotation:
		delete(spec.Annotations, k.name)
	case kindTaint:
		spec.Taints = nil
	}
}

// TestPlan_matrix has a subtest for each kind of key and each behaviour.
func TestPlan_matrix(t *testing.T) {
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k key) { c.check(t, k) })
		})
	}
}

func (c cell) check(t *testing.T, k key) {
	t.Helper()
	w := newWorld(t, newPool("a", wants(k, "x")))
	w.pools["a"].Spec.ConflictPolicy = c.policy
	if c.before != absent {
		w.put(k, c.before)
	}
	w.settle()
	if c.then != nil {
		c.then(w, k)
		w.settle()
	}
	w.want(k, c.during)
	o := w.last.outcomes["a"]
	var changes []string
	if c.change != "" {
		changes = []string{c.change + " " + k.words()}
	}
	if len(o.changes) != len(changes) || len(changes) > 0 && o.changes[0] != changes[0] {
		t.Errorf("changes: got %q, want %q", o.changes, changes)
	}
	for what, named := range map[string]struct {
		keys []string
		want int
	}{"conflicts": {o.conflicts, c.conflicts}, "fights": {o.fights, c.fights}, "healed": {o.healed, c.healed}} {
		if len(named.keys) != named.want || named.want > 0 && named.keys[0] != k.String() && named.keys[0] != k.words() {
			t.Errorf("%s: got %q, want %d", what, named.keys, named.want)
		}
	}
	c.checkRecord(t, w, k)

	w.deletePool("a")
	w.settle()
	w.want(k, c.afterwards)
	if _, left := w.node.Annotations[flotillav1.AnnotationNodeRecord]; left {
		t.Errorf("the record is still there: %v", w.node.Annotations)
	}
}

// checkRecord compares what the record says about the key. The node is a member in any case.
func (c cell) checkRecord(t *testing.T, w *world, k key) {
	t.Helper()
	e, recorded := recordOf(w.node)["a"]
	if !recorded {
		t.Fatal("the node is not recorded as a member")
	}
	held, holds := e.items[k]
	if holds != (c.written != "") {
		t.Fatalf("held: got %t, %+v", holds, held)
	}
	if !holds {
		return
	}
	was := absent
	if held.theirs.value != nil {
		was = *held.theirs.value
	}
	if held.written != c.written || was != c.was {
		t.Errorf("record: got %q, was %q; want %q, %q", held.written, was, c.written, c.was)
	}
}
