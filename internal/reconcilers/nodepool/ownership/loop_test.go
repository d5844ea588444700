// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

// by returns a pool that selects nodes by the presence or absence (!) of a label and sets others.
func by(name, label string, set ...string) *flotillav1.NodePool {
	operator := metav1.LabelSelectorOpExists
	if absence, ok := strings.CutPrefix(label, "!"); ok {
		operator, label = metav1.LabelSelectorOpDoesNotExist, absence
	}
	return ownershiptest.Pool(name, func(spec *flotillav1.NodePoolSpec) {
		spec.NodeSelector = &flotillav1.NodeSelector{MatchExpressions: []flotillav1.NodeSelectorRequirement{{Key: "example.com/" + label, Operator: operator}}}
		spec.Labels = map[string]flotillav1.LabelValue{}
		for _, label := range set {
			spec.Labels["example.com/"+label] = "yes"
		}
	})
}

// passes applies plans until there is nothing to do, and returns how many patches that took.
func (w *world) passes(most int) int {
	w.t.Helper()
	for n := range most {
		w.last = w.plan()
		if w.last.Empty() {
			return n
		}
		w.node = patched(w.t, w.node, w.last)
	}
	return most
}

func TestPlan_pools_that_feed_on_each_other(t *testing.T) {
	evicting := by("b", "free", "claimed")
	evicting.Spec.Taints = []flotillav1.NodePoolTaint{{Key: evictKey.Name, Effect: evictKey.Effect}}
	tests := map[string]struct {
		pools []*flotillav1.NodePool
		loop  []string
	}{
		"two":                             {[]*flotillav1.NodePool{by("a", "!claimed", "free"), by("b", "free", "claimed")}, []string{"a", "b"}},
		"two, and one evicts":             {[]*flotillav1.NodePool{by("a", "!claimed", "free"), evicting}, []string{"a", "b"}},
		"three":                           {[]*flotillav1.NodePool{by("a", "!three", "one"), by("b", "one", "two"), by("c", "two", "three")}, []string{"a", "b", "c"}},
		"one on itself, older than rules": {[]*flotillav1.NodePool{by("a", "!one", "one")}, []string{"a"}},
		"two that want what the other is": {[]*flotillav1.NodePool{by("a", "!two", "one"), by("b", "!one", "two")}, []string{"a", "b"}},
		"with a third that is well":       {[]*flotillav1.NodePool{by("a", "!claimed", "free"), by("b", "free", "claimed"), by("z", "!none", "well")}, []string{"a", "b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.pools...)
			w.authorise()
			// A pool gets its authority only when a node matches, so that the others may be first.
			for _, pool := range w.pools {
				if !ownership.NewMatcher(pool).Matches(w.node) {
					pool.Finalizers = nil
				}
			}
			w.passes(3)
			w.authorise()
			if n := w.passes(20); n > 2 {
				t.Fatalf("%d patches, and no end", n)
			}
			w.want(ownership.Key{Kind: ownership.Label, Name: "example.com/well"}, map[bool]string{true: "yes", false: absent}[len(tc.pools) == 3 && tc.pools[2].Name == "z"])
			found := 0
			for name, o := range w.last.Outcomes {
				if len(o.Loop) == 0 {
					continue
				}
				found++
				if !slices.Equal(o.Loop, tc.loop) || o.Done() {
					t.Errorf("%s: loop %v, settled %t, want %v", name, o.Loop, o.Done(), tc.loop)
				}
			}
			if found == 0 {
				t.Errorf("no loop is reported: %v", w.node.Labels)
			}
			// It ends when a person changes a pool.
			w.pools["a"].Spec.NodeSelector = ownershiptest.Pool("a", nil).Spec.NodeSelector
			w.authorise()
			if n := w.passes(20); n > 5 {
				t.Fatalf("%d patches after the change", n)
			}
			for name, o := range w.last.Outcomes {
				if !o.Done() {
					t.Errorf("%s is not settled after the change: %+v", name, o)
				}
			}
		})
	}
}

func TestPlan_pools_that_follow_each_other_are_no_loop(t *testing.T) {
	w := newWorld(t, by("a", "!none", "one"), by("b", "one", "two"), by("c", "two", "three"))
	w.authorise()
	w.passes(20)
	for name, o := range w.last.Outcomes {
		if !o.Done() {
			t.Errorf("%s: %+v", name, o)
		}
	}
	w.want(ownership.Key{Kind: ownership.Label, Name: "example.com/three"}, "yes")
}

func TestSurvey_names_the_pools_and_labels_of_a_loop(t *testing.T) {
	a, b := by("a", "!claimed", "free"), by("b", "free", "claimed")
	w := newWorld(t, a, b)
	w.authorise()
	w.passes(5)
	for _, pool := range []*flotillav1.NodePool{a, b} {
		if found := surveyOf(pool, w.node); len(found.Looping) > 0 {
			t.Errorf("%s alone is no loop", pool.Name)
		}
		found := surveyAll(pool, ownership.Views(w.list()), w.node)
		if len(found.Looping) == 0 {
			// A pool that the node does not match at present has nothing to say of it.
			if ownership.NewMatcher(pool).Matches(w.node) {
				t.Errorf("%s: got %+v", pool.Name, found)
			}
			continue
		}
		if diff := cmp.Diff([]string{"n1"}, found.Looping) + cmp.Diff(sets.New("a", "b"), found.LoopPools) +
			cmp.Diff([]string{"example.com/claimed", "example.com/free"}, found.LoopLabels); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pool.Name, diff)
		}
	}
}

// TestProperty_pools_that_select_by_labels_of_pools_come_to_an_end lets pools select by what others of them set.
func TestProperty_pools_that_select_by_labels_of_pools_come_to_an_end(t *testing.T) {
	loops := 0
	for seed := range randomHistories {
		c := chaos{rand.New(rand.NewPCG(seed, 5))}
		w := newWorld(t)
		for i := range 2 + c.IntN(4) {
			name := fmt.Sprintf("p%d", i)
			label := c.one("1", "2", "3", "4")
			set := []string{c.one("1", "2", "3", "4"), c.one("1", "2", "3", "4")}
			pool := by(name, c.one("", "!")+label, slices.DeleteFunc(set, func(s string) bool { return s == label })...)
			pool.Spec.Weight = c.Int32N(3)
			pool.Spec.ConflictPolicy = c.one(flotillav1.NodeConflictPolicyPreserve, flotillav1.NodeConflictPolicyOverride)
			if c.IntN(3) == 0 {
				pool.Spec.NodeSelector.MatchExpressions = append(pool.Spec.NodeSelector.MatchExpressions,
					flotillav1.NodeSelectorRequirement{Key: "example.com/foreign", Operator: metav1.LabelSelectorOpExists})
			}
			w.pools[name] = pool
		}
		for _, label := range []string{"1", "2", "foreign"} {
			if c.IntN(2) == 0 {
				w.node.Labels["example.com/"+label] = "theirs"
			}
		}
		w.authorise()
		if n := w.passes(40); n > 2*len(w.pools)+4 {
			t.Fatalf("seed %d: %d patches, pools %v", seed, n, w.pools)
		}
		for _, o := range w.last.Outcomes {
			if len(o.Loop) > 0 {
				loops++
				break
			}
		}
		for name := range w.pools {
			w.deletePool(name)
		}
		w.passes(10)
		if text := w.node.Annotations[flotillav1.AnnotationNodeRecord]; text != "" {
			t.Fatalf("seed %d: left over: %s", seed, text)
		}
		for _, label := range []string{"1", "2", "3", "4"} {
			if got := w.node.Labels["example.com/"+label]; got != "" && got != "theirs" {
				t.Fatalf("seed %d: label %s is %s after all pools", seed, label, got)
			}
		}
	}
	if loops < 100 {
		t.Errorf("only %d histories had a loop", loops)
	}
}
