// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// cell is one situation of a key on a node in pool "a", which wants it to be "x".
type cell struct {
	name string
	// before is what was on the node before the pool; "<none>" for nothing.
	before string
	policy string
	// then happens after the pool has been applied once; nil for nothing.
	then func(w *world, k ownership.Key)
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

// cells are the behaviours of one key. Each has a value before, during and after the pool, and what is reported of it.
var cells = []cell{
	{name: "add", before: absent, during: "x", afterwards: absent, change: "add", written: "x", was: absent},
	{
		name: "change", before: absent, then: func(w *world, k ownership.Key) { ownershiptest.Wants(k, "y")(&w.pools["a"].Spec) },
		during: "y", afterwards: absent, change: "change", written: "y", was: absent,
	},
	{
		name: "remove", before: absent, then: func(w *world, k ownership.Key) { unwant(k, &w.pools["a"].Spec) },
		during: absent, afterwards: absent, change: "remove",
	},
	{
		name: "drift", before: absent, then: func(w *world, k ownership.Key) { w.put(k, "z") },
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
		then:   func(w *world, k ownership.Key) { unwant(k, &w.pools["a"].Spec) },
		during: "old", afterwards: "old", change: "restore",
	},
	{
		name: "fight", before: absent,
		then: func(w *world, k ownership.Key) {
			w.put(k, "z")
			w.fought = func(got ownership.Key) bool { return got == k }
		},
		during: "z", afterwards: "z", fights: 1, written: "x", was: absent,
	},
}

// unwant takes the key out of a spec and leaves the pool something else to hold.
func unwant(k ownership.Key, spec *flotillav1.NodePoolSpec) {
	switch k.Kind {
	case ownership.Label:
		delete(spec.Labels, k.Name)
	case ownership.Annotation:
		delete(spec.Annotations, k.Name)
	case ownership.Taint:
		spec.Taints = nil
	}
}

// TestPlan_matrix has a subtest for each kind of key and each behaviour.
func TestPlan_matrix(t *testing.T) {
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k ownership.Key) { c.check(t, k) })
		})
	}
}

func (c cell) check(t *testing.T, k ownership.Key) {
	t.Helper()
	w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
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
	o := w.last.Outcomes["a"]
	var changes []string
	if c.change != "" {
		changes = []string{c.change + " " + k.Words()}
	}
	if len(o.Changes) != len(changes) || len(changes) > 0 && o.Changes[0] != changes[0] {
		t.Errorf("changes: got %q, want %q", o.Changes, changes)
	}
	var healed []string
	for _, k := range o.Healed {
		healed = append(healed, k.String())
	}
	for what, named := range map[string]struct {
		keys []string
		want int
	}{"conflicts": {o.Conflicts, c.conflicts}, "fights": {o.Fights, c.fights}, "healed": {healed, c.healed}} {
		if len(named.keys) != named.want || named.want > 0 && named.keys[0] != k.String() {
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
func (c cell) checkRecord(t *testing.T, w *world, k ownership.Key) {
	t.Helper()
	found, isRecorded := w.recorded("a")
	if !isRecorded {
		t.Fatal("the node is not recorded as a member")
	}
	items, name := found.Labels, k.Name
	switch k.Kind {
	case ownership.Annotation:
		items = found.Annotations
	case ownership.Taint:
		items, name = found.Taints, k.Name+":"+string(k.Effect)
	}
	held, holds := items[name]
	if holds != (c.written != "") {
		t.Fatalf("held: got %t, %+v", holds, held)
	}
	if !holds {
		return
	}
	was := absent
	switch {
	case held.Adopted:
		was = held.V
	case held.Was != nil:
		was = *held.Was
	}
	if held.V != c.written || was != c.was {
		t.Errorf("record: got %q, was %q; want %q, %q", held.V, was, c.written, c.was)
	}
}
