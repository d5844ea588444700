// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// randomWorlds is how many worlds each property is checked in.
const randomWorlds = 500

// chaos makes random worlds: few keys and values, so that everybody gets in everybody's way.
type chaos struct{ *rand.Rand }

func newChaos(seed uint64) chaos { return chaos{rand.New(rand.NewPCG(seed, 7))} }

func (c chaos) one(of ...string) string { return of[c.IntN(len(of))] }

func (c chaos) key() ownership.Key {
	switch c.IntN(4) {
	case 0:
		return ownership.Key{Kind: ownership.Label, Name: "example.com/" + c.one("a", "b", "c")}
	case 1:
		return ownership.Key{Kind: ownership.Annotation, Name: "example.com/" + c.one("a", "b", "c")}
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	return ownership.Key{Kind: ownership.Taint, Name: "example.com/" + c.one("a", "b"), Effect: effects[c.IntN(3)]}
}

// pool wants a few keys. Its selector is zone=a; other pools of the world share the node.
func (c chaos) pool(name string) *flotillav1.NodePool {
	pool := ownershiptest.Pool(name, func(spec *flotillav1.NodePoolSpec) {
		spec.Labels, spec.Annotations = map[string]flotillav1.LabelValue{}, map[string]flotillav1.AnnotationValue{}
		for range c.IntN(6) {
			c.wish(spec)
		}
		spec.Weight = c.Int32N(3)
		if c.IntN(2) == 0 {
			spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		}
	})
	return pool
}

func (c chaos) wish(spec *flotillav1.NodePoolSpec) {
	k, value := c.key(), c.one("x", "y", "z", "")
	switch k.Kind {
	case ownership.Label:
		spec.Labels[k.Name] = flotillav1.LabelValue(value)
	case ownership.Annotation:
		spec.Annotations[k.Name] = flotillav1.AnnotationValue(value)
	case ownership.Taint:
		spec.Taints = slices.DeleteFunc(spec.Taints, func(t flotillav1.NodePoolTaint) bool { return t.Key == k.Name && t.Effect == k.Effect })
		taint := flotillav1.NodePoolTaint{Key: k.Name, Value: value, Effect: k.Effect}
		if c.IntN(4) == 0 {
			taint.Propagation = flotillav1.TaintPropagationOnInitialization
		}
		spec.Taints = append(spec.Taints, taint)
	}
}

// foreign puts things on the node that the pools know nothing of, and some under keys that they may want.
func (c chaos) foreign(w *world) {
	added := metav1.NewTime(ownershiptest.Now.Add(-1e12).Truncate(1e9))
	for range c.IntN(6) {
		k := c.key()
		w.put(k, c.one("x", "y", "old"))
	}
	for i := range w.node.Spec.Taints {
		if c.IntN(2) == 0 {
			w.node.Spec.Taints[i].TimeAdded = &added
		}
	}
	w.node.Spec.Taints = append(w.node.Spec.Taints, corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added})
	w.node.Labels["kubernetes.io/os"] = "linux"
}

func (c chaos) world(t *testing.T, pools int) *world {
	w := newWorld(t)
	for i := range pools {
		name := fmt.Sprintf("p%d", i)
		w.pools[name] = c.pool(name)
	}
	c.foreign(w)
	return w
}

// plain is a node without what serialisation may change: empty and absent are the same.
func plain(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	if len(node.Annotations) == 0 {
		node.Annotations = nil
	}
	if len(node.Spec.Taints) == 0 {
		node.Spec.Taints = nil
	}
	return node
}

func TestProperty_apply_then_clean_is_the_node_as_it_was(t *testing.T) {
	for seed := range uint64(randomWorlds) {
		c := newChaos(seed)
		w := c.world(t, 1+c.IntN(4))
		before := plain(w.node)
		w.settle()
		names := []string{}
		for name := range w.pools {
			names = append(names, name)
		}
		slices.Sort(names)
		c.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			if c.IntN(2) == 0 {
				w.deletePool(name)
			} else {
				w.pools[name].Spec.NodeSelector = ownershiptest.Zone("elsewhere")
			}
			w.settle()
		}
		if diff := cmp.Diff(before, plain(w.node)); diff != "" {
			t.Fatalf("seed %d: the node is not as it was (-want +got):\n%s", seed, diff)
		}
	}
}

func TestProperty_applying_twice_is_one_patch(t *testing.T) {
	for seed := range uint64(randomWorlds) {
		c := newChaos(seed)
		w := c.world(t, 1+c.IntN(4))
		patches := 0
		w.authorise()
		for range 4 {
			p := w.plan()
			if p.Empty() {
				break
			}
			patches++
			w.node = patched(t, w.node, p)
		}
		if patches > 1 {
			t.Fatalf("seed %d: %d patches", seed, patches)
		}
	}
}

func TestProperty_the_order_of_pools_does_not_matter(t *testing.T) {
	for seed := range uint64(randomWorlds) {
		c := newChaos(seed)
		w := c.world(t, 2+c.IntN(4))
		w.authorise()
		pools := w.list()
		first := planNode(w.node, ownership.Views(pools))
		c.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
		second := planNode(w.node, ownership.Views(pools))
		one, err := first.Patch(w.node)
		if err != nil {
			t.Fatal(err)
		}
		two, err := second.Patch(w.node)
		if err != nil {
			t.Fatal(err)
		}
		if string(one) != string(two) {
			t.Fatalf("seed %d:\n%s\n%s", seed, one, two)
		}
	}
}

// TestProperty_a_second_writer_loses_nothing lets another writer write between any two passes, to keys that no pool wants
// and to keys that pools hold.
func TestProperty_a_second_writer_loses_nothing(t *testing.T) {
	for seed := range uint64(randomWorlds) {
		c := newChaos(seed)
		w := c.world(t, 1+c.IntN(3))
		w.settle()
		theirs := map[ownership.Key]string{}
		for step := range 8 {
			k := ownership.Key{Kind: []ownership.Kind{ownership.Label, ownership.Annotation, ownership.Taint}[c.IntN(3)], Name: "theirs.example.org/" + c.one("a", "b")}
			if k.Kind == ownership.Taint {
				k.Effect = corev1.TaintEffectNoSchedule
			}
			switch c.IntN(3) {
			case 0:
				delete(theirs, k)
				w.drop(k)
			default:
				theirs[k] = fmt.Sprintf("v%d", step)
				w.put(k, theirs[k])
			}
			// A key that a pool may hold, too: whatever it becomes, the pools keep planning to an end.
			if c.IntN(2) == 0 {
				w.put(c.key(), c.one("x", "y", "other"))
			}
			if c.IntN(3) == 0 {
				for _, pool := range w.pools {
					c.wish(&pool.Spec)
				}
			}
			w.settle()
			for k, value := range theirs {
				if w.get(k) != value {
					t.Fatalf("seed %d, step %d: %s of another writer is %q, was %q", seed, step, k, w.get(k), value)
				}
			}
		}
		for name := range w.pools {
			w.deletePool(name)
		}
		w.settle()
		for k, value := range theirs {
			if w.get(k) != value {
				t.Fatalf("seed %d: after cleaning %s of another writer is %q, was %q", seed, k, w.get(k), value)
			}
		}
	}
}

// FuzzRecord gives nodes any text for a record: it never leads to a change of what the pool's spec does not have or had,
// and planning always comes to an end.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		"", "{", "null", `{"pools":null}`, `{"pools":{"a":{}}}`, `{"pools":{"":{"uid":""}}}`,
		`{"pools":{"a":{"uid":"uid-a","labels":{"example.com/team":{"v":"theirs","was":"mine"}}}}}`,
		`{"pools":{"a":{"uid":"uid-a","labels":{"foreign.example.org/x":{"v":"1"},"kubernetes.io/os":{"v":"linux","was":"windows"}}}}}`,
		`{"pools":{"a":{"taints":{"node.kubernetes.io/unreachable:NoExecute":{"v":""},"foreign:NoSchedule":{"v":"1","was":"2"},":":{"v":""},"x:":{"v":""}}}}}`,
		`{"pools":{"a":{"annotations":{"flotilla.dev/node-record":{"v":"","was":"x"},"foreign.example.org/x":{"v":"1","was":"2"}}}}}`,
		`{"pools":{"gone":{"labels":{"foreign.example.org/x":{"v":"1"},"example.com/team":{"v":"theirs"}}},"b":{"labels":{"example.com/team":{"v":"theirs","adopted":true}}}}}`,
		`{"pools":{"a":{"labels":{"example.com/old":{"v":"1","was":"not a value!"}}}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		added := metav1.NewTime(ownershiptest.Now.Add(-1e12).Truncate(1e9))
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(labelKey, "x")), ownershiptest.Pool("b", ownershiptest.Wants(taintKey, "y")))
		w.pools["a"].Status.OwnedKeys = []string{"label:example.com/old", "label:kubernetes.io/os", "taint:node.kubernetes.io/unreachable:NoExecute", "nonsense"}
		w.node.Labels = map[string]string{"zone": "a", "kubernetes.io/os": "linux", "foreign.example.org/x": "1", "example.com/team": "theirs", "example.com/old": "1"}
		w.node.Annotations = map[string]string{"foreign.example.org/x": "1", flotillav1.AnnotationNodeRecord: text}
		w.node.Spec.Taints = []corev1.Taint{
			{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added},
			{Key: "foreign", Value: "1", Effect: corev1.TaintEffectNoSchedule},
		}
		before := w.node.DeepCopy()
		check := func(when string) {
			t.Helper()
			for _, name := range []string{"zone", "kubernetes.io/os", "foreign.example.org/x"} {
				if w.node.Labels[name] != before.Labels[name] {
					t.Errorf("%s: label %s is %q", when, name, w.node.Labels[name])
				}
			}
			if w.node.Annotations["foreign.example.org/x"] != "1" {
				t.Errorf("%s: a foreign annotation is %q", when, w.node.Annotations["foreign.example.org/x"])
			}
			if len(w.node.Spec.Taints) < 2 || !cmp.Equal(w.node.Spec.Taints[:2], before.Spec.Taints) {
				t.Errorf("%s: foreign taints: %v", when, w.node.Spec.Taints)
			}
			for name, value := range w.node.Labels {
				if _, had := before.Labels[name]; !had && name != labelKey.Name {
					t.Errorf("%s: label %s=%q came from the record", when, name, value)
				}
			}
			for name := range w.node.Annotations {
				if _, had := before.Annotations[name]; !had {
					t.Errorf("%s: annotation %s came from the record", when, name)
				}
			}
			for _, taint := range w.node.Spec.Taints[min(2, len(w.node.Spec.Taints)):] {
				if taint.Key != taintKey.Name {
					t.Errorf("%s: taint %s came from the record", when, taint.Key)
				}
			}
		}
		w.settle()
		check("after a pass")
		w.deletePool("a")
		w.settle()
		check("after a deletion")
		delete(w.pools, "a")
		w.pools["b"].Spec.NodeSelector = ownershiptest.Zone("elsewhere")
		w.settle()
		check("after leaving")
	})
}
