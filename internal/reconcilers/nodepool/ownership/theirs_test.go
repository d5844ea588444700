// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// randomHistories is how many histories properties go through; drills have more.
var randomHistories = uint64(2000)

// foreign is what others wrote under a key, as doc.go defines it. It is derived from their writes, not from the record.
type foreign struct {
	value, over string
}

// holding is the value that a pool has under a key.
type holding struct {
	pool, value string
}

// history is a world in which things happen in any order, and what follows from them by definition.
type history struct {
	chaos
	*world
	keys []ownership.Key
	// rewrites counts how often keys were put back since the manager started.
	rewrites map[ownership.Key]int
	// theirs is what others wrote, seen the same as of the last pass, and stands the values that pools have.
	theirs, seen map[ownership.Key]foreign
	stands       map[ownership.Key]holding
	// before is the node that the last pass found.
	before *corev1.Node
	log    []string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		chaos: chaos{rand.New(rand.NewPCG(seed, 11))}, world: newWorld(t), rewrites: map[ownership.Key]int{},
		theirs: map[ownership.Key]foreign{}, seen: map[ownership.Key]foreign{}, stands: map[ownership.Key]holding{},
	}
	h.keys = []ownership.Key{labelKey, annotationKey, taintKey, evictKey}
	for _, k := range h.keys {
		h.theirs[k] = foreign{value: absent}
	}
	maps.Copy(h.seen, h.theirs)
	return h
}

// say keeps a line for the failure message.
func (h *history) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// theyWrite is a write of others.
func (h *history) theyWrite(k ownership.Key, value string) {
	h.say("others: %s=%s", k, value)
	if value == absent {
		h.drop(k)
	} else {
		h.put(k, value)
	}
	at, ours := h.stands[k]
	switch {
	case !ours:
		h.theirs[k] = foreign{value: value}
		h.seen[k] = h.theirs[k]
	case value == at.value:
		h.theirs[k] = h.seen[k]
	case value == absent:
		h.theirs[k] = foreign{value: absent}
	default:
		h.theirs[k] = foreign{value, at.pool}
	}
}

// step is one event.
func (h *history) step() {
	name := h.one("p0", "p1", "p2")
	pool := h.pools[name]
	if pool == nil {
		h.reshape(name)
		return
	}
	switch h.IntN(12) {
	case 0, 1, 2:
		h.theyWrite(h.keys[h.IntN(len(h.keys))], h.one("x", "y", "z", "", absent, absent))
	case 3:
		h.reshape(name)
	case 4:
		pool.Spec.Weight = h.Int32N(4)
		h.say("%s: weight %d", name, pool.Spec.Weight)
	case 5:
		pool.Spec.ConflictPolicy = h.one(flotillav1.NodeConflictPolicyPreserve, flotillav1.NodeConflictPolicyOverride)
		h.say("%s: %s", name, pool.Spec.ConflictPolicy)
	case 6:
		h.node.Labels["zone"] = h.one("a", "a", "b")
		h.say("node: zone %s", h.node.Labels["zone"])
	case 7:
		pool.Spec.Paused = !pool.Spec.Paused && pool.DeletionTimestamp == nil
		h.say("%s: paused %t", name, pool.Spec.Paused)
	case 8:
		pool.Spec.DeletionPolicy = h.one(flotillav1.NodeDeletionPolicyClean, flotillav1.NodeDeletionPolicyClean, flotillav1.NodeDeletionPolicyOrphan)
		h.deletePool(name)
		h.say("%s: deleted, %s", name, pool.Spec.DeletionPolicy)
	case 9:
		clear(h.rewrites)
		h.say("manager restarts")
	default:
		h.pass()
	}
}

// reshape makes a pool, or gives it another spec.
func (h *history) reshape(name string) {
	made := ownershiptest.Pool(name, nil)
	made.Spec.NodeSelector.MatchLabels["zone"] = flotillav1.LabelValue(h.one("a", "a", "a", "b"))
	for _, k := range h.keys {
		if h.IntN(2) == 0 {
			set := ownershiptest.Wants(k, h.one("x", "y", "z", ""))
			if k.Kind != ownership.Taint {
				set(&made.Spec)
				continue
			}
			only := ownershiptest.Pool(name, set)
			made.Spec.Taints = append(made.Spec.Taints, only.Spec.Taints...)
		}
	}
	made.Spec.Weight = h.Int32N(4)
	made.Spec.ConflictPolicy = h.one(flotillav1.NodeConflictPolicyPreserve, flotillav1.NodeConflictPolicyOverride)
	if before := h.pools[name]; before != nil {
		made.Spec.Paused, made.Spec.DeletionPolicy = before.Spec.Paused, before.Spec.DeletionPolicy
		before.Spec = made.Spec
		made = before
	}
	h.pools[name] = made
	h.say("%s: %v %v %v weight %d %s zone %s", name, made.Spec.Labels, made.Spec.Annotations, made.Spec.Taints,
		made.Spec.Weight, made.Spec.ConflictPolicy, made.Spec.NodeSelector.MatchLabels["zone"])
}

// pass is one of the two controllers, with some of the pools not known to the pool controller yet, some patches lost to
// another writer, and some evictions not allowed yet.
func (h *history) pass() {
	for _, pool := range h.pools {
		if h.IntN(4) > 0 {
			pool.Finalizers = []string{flotillav1.FinalizerNodePool}
			if !ownership.ReadOnly(pool) {
				pool.Status.OwnedKeys = ownership.OwnedKeys(pool, sets.New[string]())
			}
		}
	}
	if h.IntN(8) == 0 {
		h.say("patch lost")
		return
	}
	mayEvict := h.IntN(3) > 0
	h.mayEvict = func(*ownership.View) bool { return mayEvict }
	h.reconcile()
}

// reconcile plans and patches, and compares what became of each key with what follows from the definition.
func (h *history) reconcile() {
	h.t.Helper()
	h.fought = func(k ownership.Key) bool { return h.rewrites[k] >= 3 }
	views := ownership.Views(h.list())
	want, waits := map[ownership.Key]holding{}, map[ownership.Key]bool{}
	for _, k := range h.keys {
		want[k], waits[k] = h.fresh(k, views)
	}
	p := h.plan()
	h.before = h.node
	if !p.Empty() {
		h.node = patched(h.t, h.node, p)
	}
	fights := sets.New[string]()
	for _, o := range p.Outcomes {
		for _, k := range o.Healed {
			h.rewrites[k]++
		}
		fights.Insert(o.Fights...)
	}
	h.say("pass: %v %v %v fights %v", h.node.Labels, h.node.Annotations, h.node.Spec.Taints, sets.List(fights))
	for _, k := range h.keys {
		if fights.Has(k.String()) || waits[k] {
			h.handOver(k, want[k].pool, views)
			continue
		}
		if got := h.get(k); got != want[k].value {
			h.fail("%s is %s, want %s; others wrote %+v", k, got, want[k].value, h.theirs[k])
		}
		if want[k].pool == "" {
			delete(h.stands, k)
			h.theirs[k] = foreign{value: want[k].value}
		} else {
			h.stands[k] = want[k]
		}
		h.seen[k] = h.theirs[k]
	}
	if again := h.plan(); !again.Empty() {
		data, _ := again.Patch(h.node)
		h.fail("a second plan is not empty: %s", data)
	}
	for name, pool := range h.pools {
		if _, recorded := h.recorded(name); pool.DeletionTimestamp != nil && !recorded {
			delete(h.pools, name)
		}
	}
}

// handOver gives a value that has to wait to the next pool if the pool that has it is leaving the node.
func (h *history) handOver(k ownership.Key, next string, views []*ownership.View) {
	at, ours := h.stands[k]
	if !ours || next == "" {
		return
	}
	i := slices.IndexFunc(views, func(v *ownership.View) bool { return v.Pool.Name == at.pool })
	if h.active(views[i], h.before) {
		return
	}
	if h.theirs[k].over == at.pool && h.theirs[k] != h.seen[k] {
		h.theirs[k] = foreign{h.theirs[k].value, next}
	}
	h.stands[k] = holding{next, at.value}
}

// fresh is the definition: the value of a key, from the existing pools and what others wrote, and whether it has to wait.
func (h *history) fresh(k ownership.Key, views []*ownership.View) (holding, bool) {
	if at, ours := h.stands[k]; ours {
		i := slices.IndexFunc(views, func(v *ownership.View) bool { return v.Pool.Name == at.pool })
		pool := views[i].Pool
		switch {
		case h.keeps(views[i], h.node):
			return holding{}, true
		case pool.DeletionTimestamp != nil && pool.Spec.DeletionPolicy == flotillav1.NodeDeletionPolicyOrphan:
			delete(h.stands, k)
			h.theirs[k] = foreign{value: h.get(k)}
		}
	}
	theirs := h.theirs[k]
	for _, v := range views {
		value, wanted := desired(v.Pool, k)
		if !wanted || !h.active(v, h.node) {
			continue
		}
		overrides := v.Pool.Spec.ConflictPolicy == flotillav1.NodeConflictPolicyOverride
		if theirs.value != absent && theirs.value != value && !overrides && theirs.over != v.Pool.Name {
			break
		}
		waits := k.Effect == corev1.TaintEffectNoExecute && !h.mayEvict(v) && h.get(k) != value
		return holding{v.Pool.Name, value}, waits
	}
	return holding{value: theirs.value}, false
}

// desired is the value that the spec of a pool has for a key.
func desired(pool *flotillav1.NodePool, k ownership.Key) (string, bool) {
	switch k.Kind {
	case ownership.Label:
		value, ok := pool.Spec.Labels[k.Name]
		return string(value), ok
	case ownership.Annotation:
		value, ok := pool.Spec.Annotations[k.Name]
		return string(value), ok
	}
	i := slices.IndexFunc(pool.Spec.Taints, func(t flotillav1.NodePoolTaint) bool { return t.Key == k.Name && t.Effect == k.Effect })
	if i < 0 {
		return "", false
	}
	return pool.Spec.Taints[i].Value, true
}

// authorised reports whether the pool has its finalizer and lists all keys of its spec.
func (h *history) authorised(pool *flotillav1.NodePool) bool {
	return len(pool.Finalizers) > 0 && !slices.ContainsFunc(h.keys, func(k ownership.Key) bool {
		_, wanted := desired(pool, k)
		return wanted && !slices.Contains(pool.Status.OwnedKeys, k.String())
	})
}

// active reports whether the pool writes to the node.
func (h *history) active(v *ownership.View, node *corev1.Node) bool {
	return v.Pool.DeletionTimestamp == nil && !v.Pool.Spec.Paused && v.Matches(node) && h.authorised(v.Pool)
}

// keeps reports whether everything that the pool has on the node stays for now.
func (h *history) keeps(v *ownership.View, node *corev1.Node) bool {
	return v.Pool.DeletionTimestamp == nil && (v.Pool.Spec.Paused || v.Matches(node) && !h.authorised(v.Pool))
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	for _, line := range h.log {
		h.t.Log(line)
	}
	h.t.Fatalf(format, args...)
}

// TestProperty_the_order_of_events_does_not_matter goes through random histories. In the end a node is what follows from
// the pools that there are and from what others wrote, and after all pools what others wrote alone.
func TestProperty_the_order_of_events_does_not_matter(t *testing.T) {
	for seed := range randomHistories {
		h := newHistory(t, seed)
		h.say("seed %d", seed)
		for range 30 {
			h.step()
		}
		clear(h.rewrites)
		h.mayEvict = func(*ownership.View) bool { return true }
		for _, pool := range h.pools {
			pool.Spec.Paused = false
		}
		for range 3 {
			h.authorise()
			h.reconcile()
		}
		for _, k := range h.keys {
			if want, waits := h.fresh(k, ownership.Views(h.list())); waits || h.get(k) != want.value {
				h.fail("in the end %s is %s, want %s", k, h.get(k), want.value)
			}
		}
		for name := range h.pools {
			h.pools[name].Spec.DeletionPolicy = flotillav1.NodeDeletionPolicyClean
			h.deletePool(name)
		}
		h.reconcile()
		for _, k := range h.keys {
			if h.get(k) != h.theirs[k].value {
				h.fail("without pools %s is %s, want %s", k, h.get(k), h.theirs[k].value)
			}
		}
		if len(h.pools) > 0 || h.node.Annotations[flotillav1.AnnotationNodeRecord] != "" {
			h.fail("left over: %d pools, %v", len(h.pools), h.node.Annotations)
		}
	}
}

func TestPlan_preserving_pool_finds_what_others_wrote_again(t *testing.T) {
	tests := map[string]struct {
		// given is what others wrote before the pools; then takes the Override pool away.
		then func(w *world)
	}{
		"when the overriding pool is deleted":            {func(w *world) { w.deletePool("high") }},
		"when its weight changes":                        {func(w *world) { w.pools["high"].Spec.Weight = 0; w.pools["low"].Spec.Weight = 1 }},
		"when the overriding pool drops the key":         {func(w *world) { w.pools["high"].Spec = ownershiptest.Pool("high", nil).Spec }},
		"when the node leaves it":                        {func(w *world) { w.pools["high"].Spec.NodeSelector = ownershiptest.Zone("b") }},
		"when it preserves from now on":                  {func(w *world) { w.pools["high"].Spec.ConflictPolicy = "" }},
		"when others have insisted, and then it is gone": {func(w *world) { insist(w); w.deletePool("high") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k ownership.Key) {
				w := newWorld(t, ownershiptest.Pool("high", ownershiptest.Wants(k, "from-high")), ownershiptest.Pool("low", ownershiptest.Wants(k, "from-low")))
				w.pools["high"].Spec.Weight = 9
				w.pools["high"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
				w.put(k, "theirs")
				w.settle()
				w.want(k, "from-high")
				tc.then(w)
				w.settle()
				w.want(k, "theirs")
				if got := w.last.Outcomes["low"].Conflicts; len(got) != 1 {
					t.Errorf("conflicts of the pool that preserves: got %v", got)
				}
				w.settle()
				w.want(k, "theirs")
			})
		})
	}
}

// insist writes the value of others once more under every key, over that of a pool.
func insist(w *world) {
	for _, k := range []ownership.Key{labelKey, annotationKey, taintKey} {
		if w.get(k) != absent {
			w.put(k, "theirs")
		}
	}
	w.settle()
}

func TestPlan_what_others_wrote(t *testing.T) {
	tests := map[string]struct {
		before string
		// write is what others write over the value of the pool, which is x; absent for a removal.
		write string
		// between is whether the pool puts its value back before it goes.
		between bool
		want    string
	}{
		"another value, put back":          {before: absent, write: "z", between: true, want: "z"},
		"another value, not put back":      {before: absent, write: "z", want: "z"},
		"removed, put back":                {before: "x", write: absent, between: true, want: absent},
		"removed, not put back":            {before: "x", write: absent, want: absent},
		"the very value":                   {before: absent, write: "x", between: true, want: absent},
		"the very value, of others before": {before: "x", write: "x", between: true, want: "x"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k ownership.Key) {
				w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
				if tc.before != absent {
					w.put(k, tc.before)
				}
				w.settle()
				w.want(k, "x")
				w.drop(k)
				if tc.write != absent {
					w.put(k, tc.write)
				}
				if tc.between {
					w.settle()
					w.want(k, "x")
				}
				w.deletePool("a")
				w.settle()
				w.want(k, tc.want)
			})
		})
	}
}

// TestRecord_of_the_first_version reads what the version before wrote, and leaves it as it is.
func TestRecord_of_the_first_version(t *testing.T) {
	const text = `{"pools":{"a":{"uid":"uid-a","labels":{"example.com/team":{"v":"x","was":"old"}},` +
		`"annotations":{"example.com/team":{"v":"y"}},"taints":{"example.com/team:NoSchedule":{"v":"z","adopted":true}}}}}`
	pool := ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) {
		ownershiptest.Wants(labelKey, "x")(spec)
		ownershiptest.Wants(annotationKey, "y")(spec)
		ownershiptest.Wants(taintKey, "z")(spec)
		spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
	})
	w := newWorld(t, pool)
	w.put(labelKey, "x")
	w.put(annotationKey, "y")
	w.put(taintKey, "z")
	w.node.Annotations[flotillav1.AnnotationNodeRecord] = text
	if p := w.settle(); !p.Empty() {
		t.Errorf("the upgrade is a patch of each node: %+v", p)
	}
	w.deletePool("a")
	w.settle()
	w.want(labelKey, "old")
	w.want(annotationKey, absent)
	w.want(taintKey, "z")
}
