// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// randomHistories is how many histories properties go through; drills have more.
var randomHistories = uint64(2000)

// told is what others wrote under a key, as doc.go defines it: kept by looking at their writes, not at the record.
type told struct {
	value, over string
}

// stood is the value that stands under a key for a pool.
type stood struct {
	pool, value string
}

// history is a world in which things happen in any order, and what follows from them by definition.
type history struct {
	chaos
	*world
	keys   []key
	ledger *Ledger
	now    time.Time
	// theirs is what others wrote, seen the same as of the last pass, and stands what is there for a pool.
	theirs, seen map[key]told
	stands       map[key]stood
	// before is the node that the last pass found.
	before *corev1.Node
	log    []string
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		chaos: chaos{rand.New(rand.NewPCG(seed, 11))}, world: newWorld(t), ledger: &Ledger{}, now: testNow.Time,
		theirs: map[key]told{}, seen: map[key]told{}, stands: map[key]stood{},
	}
	h.keys = []key{labelKey, annotationKey, taintKey, evictKey}
	for _, k := range h.keys {
		h.theirs[k] = told{value: absent}
	}
	maps.Copy(h.seen, h.theirs)
	return h
}

// say keeps a line for the failure message.
func (h *history) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// theyWrite is a write of somebody else.
func (h *history) theyWrite(k key, value string) {
	h.say("others: %s=%s", k, value)
	if value == absent {
		h.drop(k)
	} else {
		h.put(k, value)
	}
	at, ours := h.stands[k]
	switch {
	case !ours:
		h.theirs[k] = told{value: value}
		h.seen[k] = h.theirs[k]
	case value == at.value:
		h.theirs[k] = h.seen[k]
	case value == absent:
		h.theirs[k] = told{value: absent}
	default:
		h.theirs[k] = told{value, at.pool}
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
		h.ledger = &Ledger{}
		h.say("manager restarts")
	default:
		h.pass()
	}
}

// reshape makes a pool, or gives it another spec.
func (h *history) reshape(name string) {
	made := newPool(name, nil)
	made.Spec.NodeSelector.MatchLabels["zone"] = flotillav1.LabelValue(h.one("a", "a", "a", "b"))
	for _, k := range h.keys {
		if h.IntN(2) == 0 {
			set := wants(k, h.one("x", "y", "z", ""))
			if k.kind != kindTaint {
				set(&made.Spec)
				continue
			}
			only := newPool(name, set)
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
			if !isHeld(pool) {
				pool.Status.OwnedKeys = ownedKeys(pool, sets.New[string]())
			}
		}
	}
	if h.IntN(8) == 0 {
		h.say("patch lost")
		return
	}
	mayEvict := h.IntN(3) > 0
	h.mayEvict = func(*view) bool { return mayEvict }
	h.reconcile()
}

// reconcile plans and patches, and compares what became of each key with what follows from the definition.
func (h *history) reconcile() {
	h.t.Helper()
	h.fought = func(k key) bool { return h.ledger.fought(nodeKey{name: "n1"}, h.node.UID, k, h.now) }
	views := viewsOf(h.list())
	want, waits := map[key]stood{}, map[key]bool{}
	for _, k := range h.keys {
		want[k], waits[k] = h.fresh(k, views)
	}
	p := h.plan()
	h.before = h.node
	if !p.empty() {
		h.node = patched(h.t, h.node, p)
	}
	for _, k := range p.rewrites {
		h.ledger.rewrote(nodeKey{name: "n1"}, h.node.UID, k, h.now)
	}
	fights := sets.New[string]()
	for _, o := range p.outcomes {
		fights.Insert(o.fights...)
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
			h.theirs[k] = told{value: want[k].value}
		} else {
			h.stands[k] = want[k]
		}
		h.seen[k] = h.theirs[k]
	}
	if again := h.plan(); !again.empty() {
		data, _ := again.patch(h.node)
		h.fail("a second plan is not empty: %s", data)
	}
	for name, pool := range h.pools {
		if _, recorded := recordOf(h.node)[name]; pool.DeletionTimestamp != nil && !recorded {
			delete(h.pools, name)
		}
	}
}

// handOver lets a value that has to wait stand for the pool that comes next, when the one that it stood for is on its way out.
func (h *history) handOver(k key, next string, views []*view) {
	at, ours := h.stands[k]
	if !ours || next == "" {
		return
	}
	i := slices.IndexFunc(views, func(v *view) bool { return v.name == at.pool })
	if views[i].stanceOn(h.before, true) == stanceActive {
		return
	}
	if h.theirs[k].over == at.pool && h.theirs[k] != h.seen[k] {
		h.theirs[k] = told{h.theirs[k].value, next}
	}
	h.stands[k] = stood{next, at.value}
}

// fresh is the definition: what stands under a key, from the pools that there are and what others wrote; or that it has
// to wait.
func (h *history) fresh(k key, views []*view) (stood, bool) {
	if at, ours := h.stands[k]; ours {
		i := slices.IndexFunc(views, func(v *view) bool { return v.name == at.pool })
		switch views[i].stanceOn(h.node, true) {
		case stanceFrozen:
			return stood{}, true
		case stanceReleasing:
			delete(h.stands, k)
			h.theirs[k] = told{value: h.get(k)}
		}
	}
	theirs := h.theirs[k]
	for _, v := range views {
		if v.stanceOn(h.node, false) != stanceActive {
			continue
		}
		i := slices.IndexFunc(v.wishes, func(w wish) bool { return w.key == k })
		if i < 0 {
			continue
		}
		value := v.wishes[i].value
		if theirs.value != absent && theirs.value != value && !v.overrides() && theirs.over != v.name {
			break
		}
		waits := k.noExecute() && !h.mayEvict(v) && h.get(k) != value
		return stood{v.name, value}, waits
	}
	return stood{value: theirs.value}, false
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
		h.now = h.now.Add(fightWindow)
		h.mayEvict = func(*view) bool { return true }
		for _, pool := range h.pools {
			pool.Spec.Paused = false
		}
		for range 3 {
			h.authorise()
			h.reconcile()
		}
		for _, k := range h.keys {
			if want, waits := h.fresh(k, viewsOf(h.list())); waits || h.get(k) != want.value {
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
		"when the overriding pool drops the key":         {func(w *world) { w.pools["high"].Spec = newPool("high", nil).Spec }},
		"when the node leaves it":                        {func(w *world) { w.pools["high"].Spec.NodeSelector = zone("b") }},
		"when it preserves from now on":                  {func(w *world) { w.pools["high"].Spec.ConflictPolicy = "" }},
		"when others have insisted, and then it is gone": {func(w *world) { insist(w); w.deletePool("high") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k key) {
				w := newWorld(t, newPool("high", wants(k, "from-high")), newPool("low", wants(k, "from-low")))
				w.pools["high"].Spec.Weight = 9
				w.pools["high"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
				w.put(k, "theirs")
				w.settle()
				w.want(k, "from-high")
				tc.then(w)
				w.settle()
				w.want(k, "theirs")
				if got := w.last.outcomes["low"].conflicts; len(got) != 1 {
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
	for _, k := range []key{labelKey, annotationKey, taintKey} {
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
			forEachKind(t, func(t *testing.T, k key) {
				w := newWorld(t, newPool("a", wants(k, "x")))
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
	pool := newPool("a", func(spec *flotillav1.NodePoolSpec) {
		wants(labelKey, "x")(spec)
		wants(annotationKey, "y")(spec)
		wants(taintKey, "z")(spec)
		spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
	})
	w := newWorld(t, pool)
	w.put(labelKey, "x")
	w.put(annotationKey, "y")
	w.put(taintKey, "z")
	w.node.Annotations[flotillav1.AnnotationNodeRecord] = text
	if got := recordOf(w.node).encode(); got != text {
		t.Errorf("encoded again (-want +got):\n%s", cmp.Diff(text, got))
	}
	if p := w.settle(); !p.empty() {
		t.Errorf("the upgrade is a patch of each node: %+v", p)
	}
	w.deletePool("a")
	w.settle()
	w.want(labelKey, "old")
	w.want(annotationKey, absent)
	w.want(taintKey, "z")
}
