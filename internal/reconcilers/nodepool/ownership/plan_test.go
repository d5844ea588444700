// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
)

func TestPlan_one_pool(t *testing.T) {
	override := func(w *world) { w.pools["a"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride }
	tests := map[string]struct {
		// Each step changes the world; the plan is settled after each.
		steps    []func(w *world, k ownership.Key)
		want     string
		recorded bool
	}{
		"an absent key is added": {steps: []func(*world, ownership.Key){}, want: "x", recorded: true},
		"a changed value follows the spec": {
			steps: []func(*world, ownership.Key){func(w *world, k ownership.Key) { ownershiptest.Wants(k, "y")(&w.pools["a"].Spec) }},
			want:  "y", recorded: true,
		},
		"a key that leaves the spec is removed": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { w.pools["a"].Spec = ownershiptest.Pool("a", nil).Spec }},
			want:  "<none>", recorded: true,
		},
		"a removed key comes back": {
			steps: []func(*world, ownership.Key){func(w *world, k ownership.Key) { w.drop(k) }},
			want:  "x", recorded: true,
		},
		"a changed key is put back": {
			steps: []func(*world, ownership.Key){func(w *world, k ownership.Key) { w.put(k, "z") }},
			want:  "x", recorded: true,
		},
		"a node that leaves is made as it was": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { w.node.Labels["zone"] = "b" }},
			want:  "<none>",
		},
		"a node that becomes a control-plane node is made as it was": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { w.node.Labels["node-role.kubernetes.io/control-plane"] = "" }},
			want:  "<none>",
		},
		"a deleted pool is cleaned": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { w.deletePool("a") }},
			want:  "<none>",
		},
		"a deleted pool waits for the pool controller": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { w.pools["a"].DeletionTimestamp = &ownershiptest.Now }},
			want:  "x", recorded: true,
		},
		"an orphaned pool leaves its keys": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) {
				w.pools["a"].Spec.DeletionPolicy = flotillav1.NodeDeletionPolicyOrphan
				w.deletePool("a")
			}},
			want: "x",
		},
		"a pool that is not there is no reason to remove": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { delete(w.pools, "a") }},
			want:  "x", recorded: true,
		},
		"a paused pool is not put back": {
			steps: []func(*world, ownership.Key){func(w *world, k ownership.Key) { w.pools["a"].Spec.Paused = true; w.drop(k) }},
			want:  "<none>", recorded: true,
		},
		"a paused pool that is deleted is cleaned": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { w.pools["a"].Spec.Paused = true; w.deletePool("a") }},
			want:  "<none>",
		},
		"a dry run that is deleted is cleaned": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { w.pools["a"].Spec.DryRun = true; w.deletePool("a") }},
			want:  "<none>",
		},
		"a paused pool that is deleted waits for the pool controller": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) {
				w.pools["a"].Spec.Paused = true
				w.pools["a"].DeletionTimestamp = &ownershiptest.Now
			}},
			want: "x", recorded: true,
		},
		"a dry run changes nothing": {
			steps: []func(*world, ownership.Key){func(w *world, k ownership.Key) {
				w.pools["a"].Spec.DryRun = true
				ownershiptest.Wants(k, "y")(&w.pools["a"].Spec)
			}},
			want: "x", recorded: true,
		},
		"a key that others changed is not removed on leaving": {
			steps: []func(*world, ownership.Key){func(w *world, k ownership.Key) { w.put(k, "z"); w.node.Labels["zone"] = "b" }},
			want:  "z",
		},
		"nothing is cleaned twice": {
			steps: []func(*world, ownership.Key){
				func(w *world, _ ownership.Key) { w.deletePool("a") },
				func(w *world, k ownership.Key) { w.put(k, "x") },
			},
			want: "x",
		},
		"turning to Override changes nothing on owned keys": {
			steps: []func(*world, ownership.Key){func(w *world, _ ownership.Key) { override(w) }},
			want:  "x", recorded: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k ownership.Key) {
				w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
				w.settle()
				w.want(k, "x")
				for _, step := range tc.steps {
					step(w, k)
					w.settle()
				}
				w.want(k, tc.want)
				if _, recorded := w.recorded("a"); recorded != tc.recorded {
					t.Errorf("recorded: got %t, want %t", recorded, tc.recorded)
				}
			})
		})
	}
}

func TestPlan_what_was_there_before(t *testing.T) {
	tests := map[string]struct {
		before, policy     string
		during, afterwards string
		conflicts          int
	}{
		"an equal value is adopted and stays":      {before: "x", during: "x", afterwards: "x"},
		"another value is kept and reported":       {before: "old", during: "old", afterwards: "old", conflicts: 1},
		"Override replaces and restores":           {before: "old", policy: flotillav1.NodeConflictPolicyOverride, during: "x", afterwards: "old"},
		"Override adopts an equal value":           {before: "x", policy: flotillav1.NodeConflictPolicyOverride, during: "x", afterwards: "x"},
		"an empty value is a value and comes back": {before: "", policy: flotillav1.NodeConflictPolicyOverride, during: "x", afterwards: ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k ownership.Key) {
				w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
				w.pools["a"].Spec.ConflictPolicy = tc.policy
				w.put(k, tc.before)
				p := w.settle()
				w.want(k, tc.during)
				if got := len(p.Outcomes["a"].Conflicts); got != tc.conflicts {
					t.Errorf("conflicts: got %d, want %d", got, tc.conflicts)
				}
				w.deletePool("a")
				w.settle()
				w.want(k, tc.afterwards)
				if w.node.Annotations[flotillav1.AnnotationNodeRecord] != "" {
					t.Errorf("the record is still there: %s", w.node.Annotations[flotillav1.AnnotationNodeRecord])
				}
			})
		})
	}
}

func TestPlan_adopted_value_stays_theirs(t *testing.T) {
	for policy, during := range map[string]string{flotillav1.NodeConflictPolicyOverride: "y", flotillav1.NodeConflictPolicyPreserve: "x"} {
		t.Run(policy, func(t *testing.T) {
			forEachKind(t, func(t *testing.T, k ownership.Key) {
				w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
				w.pools["a"].Spec.ConflictPolicy = policy
				w.put(k, "x")
				w.settle()
				ownershiptest.Wants(k, "y")(&w.pools["a"].Spec)
				w.settle()
				w.want(k, during)
				w.deletePool("a")
				w.settle()
				w.want(k, "x")
			})
		})
	}
}

func TestPlan_never_overrides_what_it_could_not_restore(t *testing.T) {
	w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(annotationKey, "x")))
	w.pools["a"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
	long := strings.Repeat("v", 1024+1)
	w.put(annotationKey, long)
	p := w.settle()
	w.want(annotationKey, long)
	if len(p.Outcomes["a"].Conflicts) != 1 {
		t.Errorf("want a conflict, got %+v", p.Outcomes["a"])
	}
}

func TestPlan_precedence(t *testing.T) {
	forEachKind(t, func(t *testing.T, k ownership.Key) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "from-a")), ownershiptest.Pool("b", ownershiptest.Wants(k, "from-b")))
		w.settle()
		w.want(k, "from-a")
		if got := w.last.Outcomes["b"].Conflicts; len(got) != 1 {
			t.Errorf("the loser has no conflict: %v", got)
		}
		w.pools["b"].Spec.Weight = 1
		w.settle()
		w.want(k, "from-b")
		if got := w.last.Outcomes["a"].Conflicts; len(got) != 1 {
			t.Errorf("the new loser has no conflict: %v", got)
		}
		// The other pool takes over without a gap, and the end is as the beginning.
		w.deletePool("b")
		w.settle()
		w.want(k, "from-a")
		delete(w.pools, "b")
		w.deletePool("a")
		w.settle()
		w.want(k, "<none>")
	})
}

func TestPlan_takeover_keeps_what_was_there_before_all(t *testing.T) {
	forEachKind(t, func(t *testing.T, k ownership.Key) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "from-a")))
		w.pools["a"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		w.put(k, "old")
		w.settle()
		w.pools["b"] = ownershiptest.Pool("b", ownershiptest.Wants(k, "from-b"))
		w.pools["b"].Spec.Weight = 9
		w.pools["b"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		w.settle()
		w.want(k, "from-b")
		w.deletePool("a")
		w.settle()
		w.want(k, "from-b")
		delete(w.pools, "a")
		w.deletePool("b")
		w.settle()
		w.want(k, "old")
	})
}

func TestPlan_pool_created_again_takes_its_record_up(t *testing.T) {
	forEachKind(t, func(t *testing.T, k ownership.Key) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
		w.settle()
		again := ownershiptest.Pool("a", ownershiptest.Wants(k, "x"))
		again.UID = "another"
		w.pools["a"] = again
		// Without authority nothing is touched: neither removed nor written.
		if p := w.apply(); !p.Empty() {
			t.Fatalf("a pool without authority changed the node: %+v", p)
		}
		// The finalizer comes before the keys are listed.
		again.Finalizers = []string{flotillav1.FinalizerNodePool}
		if p := w.plan(); !p.Empty() {
			t.Fatalf("half the authority changed the node: %+v", p)
		}
		before := w.node.DeepCopy()
		w.settle()
		delete(before.Annotations, flotillav1.AnnotationNodeRecord)
		after := w.node.DeepCopy()
		delete(after.Annotations, flotillav1.AnnotationNodeRecord)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("the keys flapped (-before +after):\n%s", diff)
		}
		if got, _ := w.recorded("a"); got.UID != "another" {
			t.Errorf("recorded UID: got %q", got.UID)
		}
		w.deletePool("a")
		w.settle()
		w.want(k, "<none>")
	})
}

func TestPlan_pool_back_after_another_took_over(t *testing.T) {
	forEachKind(t, func(t *testing.T, k ownership.Key) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "from-a")))
		w.settle()
		gone := w.pools["a"]
		delete(w.pools, "a")
		w.pools["b"] = ownershiptest.Pool("b", ownershiptest.Wants(k, "from-b"))
		w.pools["b"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		w.settle()
		w.want(k, "from-b")
		gone.UID = "another"
		w.pools["a"] = gone
		w.settle()
		w.want(k, "from-a")
		w.deletePool("a")
		w.settle()
		w.want(k, "from-b")
		delete(w.pools, "a")
		w.deletePool("b")
		w.settle()
		w.want(k, "<none>")
	})
}

func TestPlan_paused_pool_blocks_its_keys(t *testing.T) {
	forEachKind(t, func(t *testing.T, k ownership.Key) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "from-a")))
		w.settle()
		w.pools["a"].Spec.Paused = true
		w.pools["b"] = ownershiptest.Pool("b", ownershiptest.Wants(k, "from-b"))
		w.pools["b"].Spec.Weight = 9
		w.pools["b"].Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		w.settle()
		w.want(k, "from-a")
		if len(w.last.Outcomes["b"].Conflicts) != 1 {
			t.Errorf("want a conflict for b, got %+v", w.last.Outcomes["b"])
		}
		w.pools["a"].Spec.Paused = false
		w.settle()
		w.want(k, "from-b")
	})
}

func TestPlan_record_is_no_authority(t *testing.T) {
	hostile := func(w *world, items string) {
		w.node.Annotations = map[string]string{flotillav1.AnnotationNodeRecord: `{"pools":{"a":{"uid":"uid-a",` + items + `}}}`}
	}
	tests := map[string]struct {
		items string
		key   ownership.Key
		value string
	}{
		"a label that the pool never had": {
			items: `"labels":{"example.com/other":{"v":"v"}}`, key: ownership.Key{Kind: ownership.Label, Name: "example.com/other"}, value: "v",
		},
		"a system label": {
			items: `"labels":{"kubernetes.io/os":{"v":"linux"}}`, key: ownership.Key{Kind: ownership.Label, Name: "kubernetes.io/os"}, value: "linux",
		},
		"a taint that the pool never had": {
			items: `"taints":{"example.com/other:NoSchedule":{"v":"v"}}`,
			key:   ownership.Key{Kind: ownership.Taint, Name: "example.com/other", Effect: corev1.TaintEffectNoSchedule}, value: "v",
		},
		"a system taint": {
			items: `"taints":{"node.kubernetes.io/unreachable:NoExecute":{"v":""}}`,
			key:   ownership.Key{Kind: ownership.Taint, Name: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, ownershiptest.Pool("a", nil))
			// Even listed as owned, a system key is not touched.
			w.pools["a"].Status.OwnedKeys = []string{"label:kubernetes.io/os", "taint:node.kubernetes.io/unreachable:NoExecute"}
			w.put(tc.key, tc.value)
			hostile(w, tc.items)
			w.settle()
			w.want(tc.key, tc.value)
			w.deletePool("a")
			w.settle()
			w.want(tc.key, tc.value)
		})
	}
	t.Run("a value that no spec may have is not restored", func(t *testing.T) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(labelKey, "x")))
		w.put(labelKey, "x")
		hostile(w, `"labels":{"example.com/team":{"v":"x","was":"not a label value!"}}`)
		w.settle()
		w.deletePool("a")
		w.settle()
		w.want(labelKey, "<none>")
	})
	t.Run("what another pool never had is no leave to override", func(t *testing.T) {
		w := newWorld(t, ownershiptest.Pool("a", nil), ownershiptest.Pool("b", ownershiptest.Wants(labelKey, "x")))
		w.put(labelKey, "theirs")
		hostile(w, `"labels":{"example.com/team":{"v":"theirs"}}`)
		w.settle()
		w.want(labelKey, "theirs")
	})
	t.Run("what cannot be read is no record", func(t *testing.T) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(labelKey, "x")))
		w.node.Annotations = map[string]string{flotillav1.AnnotationNodeRecord: "{"}
		w.settle()
		w.want(labelKey, "x")
	})
}

func TestPlan_without_authority_nothing_is_written(t *testing.T) {
	forEachKind(t, func(t *testing.T, k ownership.Key) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
		if p := w.plan(); !p.Empty() {
			t.Errorf("written without finalizer: %+v", p)
		}
		w.pools["a"].Finalizers = []string{flotillav1.FinalizerNodePool}
		if p := w.plan(); !p.Empty() {
			t.Errorf("written without the keys in status: %+v", p)
		}
		// Neither is a part of a changed spec written: the old key stays until the new one may come.
		w.settle()
		w.want(k, "x")
		renamed := k
		renamed.Name = "example.com/renamed"
		ownershiptest.Wants(renamed, "x")(&w.pools["a"].Spec)
		if p := w.plan(); !p.Empty() {
			t.Errorf("half a change was written: %+v", p)
		}
		w.settle()
		w.want(k, "<none>")
		w.want(renamed, "x")
	})
}

func TestPlan_foreign_taints_stay_byte_for_byte(t *testing.T) {
	added := metav1.NewTime(ownershiptest.Now.Add(-1e12).Truncate(1e9))
	foreign := []corev1.Taint{
		{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added},
		{Key: taintKey.Name, Value: "old", Effect: taintKey.Effect, TimeAdded: &added},
		{Key: taintKey.Name, Value: "old", Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: "ToBeDeletedByClusterAutoscaler", Value: "1", Effect: corev1.TaintEffectNoSchedule},
	}
	pool := ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) {
		spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		spec.Taints = []flotillav1.NodePoolTaint{
			{Key: "example.com/z", Value: "1", Effect: corev1.TaintEffectNoSchedule},
			{Key: taintKey.Name, Value: "x", Effect: taintKey.Effect},
			{Key: evictKey.Name, Value: "now", Effect: evictKey.Effect},
		}
	})
	w := newWorld(t, pool)
	w.node.Spec.Taints = foreign
	w.settle()
	want := []corev1.Taint{
		foreign[0],
		{Key: taintKey.Name, Value: "x", Effect: taintKey.Effect, TimeAdded: &added},
		foreign[2], foreign[3],
		{Key: "example.com/z", Value: "1", Effect: corev1.TaintEffectNoSchedule},
		{Key: evictKey.Name, Value: "now", Effect: evictKey.Effect, TimeAdded: &ownershiptest.Now},
	}
	if diff := cmp.Diff(want, w.node.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	w.deletePool("a")
	w.settle()
	if diff := cmp.Diff(foreign, w.node.Spec.Taints); diff != "" {
		t.Errorf("taints after cleaning (-want +got):\n%s", diff)
	}
}

func TestPlan_taints_for_joining_nodes_are_put_on_once(t *testing.T) {
	once := func(spec *flotillav1.NodePoolSpec) {
		spec.Taints = []flotillav1.NodePoolTaint{{Key: taintKey.Name, Value: "x", Effect: taintKey.Effect, Propagation: flotillav1.TaintPropagationOnInitialization}}
	}
	w := newWorld(t, ownershiptest.Pool("a", once))
	w.settle()
	w.want(taintKey, "x")
	w.drop(taintKey)
	w.settle()
	w.want(taintKey, "<none>")

	w = newWorld(t, ownershiptest.Pool("a", once))
	w.settle()
	w.deletePool("a")
	w.settle()
	w.want(taintKey, "<none>")

	w = newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(labelKey, "x")))
	w.settle()
	once(&w.pools["a"].Spec)
	w.settle()
	w.want(taintKey, "<none>")
	w.pools["a"].Spec.Taints[0].Propagation = flotillav1.TaintPropagationAlways
	w.settle()
	w.want(taintKey, "x")
}

func TestPlan_record_too_large_leaves_the_node(t *testing.T) {
	pool := ownershiptest.Pool("a", func(spec *flotillav1.NodePoolSpec) {
		spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		spec.Annotations = map[string]flotillav1.AnnotationValue{}
		for i := range 64 {
			spec.Annotations["example.com/k"+string(rune('A'+i%26))+string(rune('a'+i/26))] = flotillav1.AnnotationValue(strings.Repeat("n", 1024))
		}
	})
	w := newWorld(t, pool)
	w.node.Annotations = map[string]string{}
	for name := range pool.Spec.Annotations {
		w.node.Annotations[name] = strings.Repeat("o", 1024)
	}
	p := w.settle()
	if !p.Empty() || !p.Outcomes["a"].TooLarge {
		t.Errorf("want an empty plan that says too large, got tooLarge=%t empty=%t", p.Outcomes["a"].TooLarge, p.Empty())
	}
}

func TestPlan_fights_are_left_alone(t *testing.T) {
	forEachKind(t, func(t *testing.T, k ownership.Key) {
		w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(k, "x")))
		w.settle()
		w.put(k, "theirs")
		if healed := w.plan().Outcomes["a"].Healed; len(healed) != 1 || healed[0] != k {
			t.Errorf("healed: got %v", healed)
		}
		w.fought = func(got ownership.Key) bool { return got == k }
		p := w.settle()
		w.want(k, "theirs")
		if len(p.Outcomes["a"].Fights) != 1 {
			t.Errorf("want a fight, got %+v", p.Outcomes["a"])
		}
		// A change of the spec is no rewrite.
		w.put(k, "x")
		ownershiptest.Wants(k, "y")(&w.pools["a"].Spec)
		w.settle()
		w.want(k, "y")
	})
}

func TestPlan_no_execute_waits_for_its_turn(t *testing.T) {
	w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(evictKey, "x")))
	w.pools["a"].Spec.Labels = map[string]flotillav1.LabelValue{labelKey.Name: "x"}
	w.mayEvict = func(*ownership.View) bool { return false }
	p := w.settle()
	w.want(evictKey, "<none>")
	w.want(labelKey, "x")
	if !p.EvictionsHeld || p.Outcomes["a"].Done() {
		t.Errorf("want evictions held, got %+v", p.Outcomes["a"])
	}
	w.mayEvict = always
	w.settle()
	w.want(evictKey, "x")
}

func TestPlan_joins_and_leaves(t *testing.T) {
	w := newWorld(t, ownershiptest.Pool("a", nil))
	if p := w.settle(); len(p.Joined) != 1 || len(p.Left) != 0 {
		t.Errorf("joining: got %d joined, %d left", len(p.Joined), len(p.Left))
	}
	w.node.Labels["zone"] = "b"
	if p := w.settle(); len(p.Joined) != 0 || len(p.Left) != 1 {
		t.Errorf("leaving: got %d joined, %d left", len(p.Joined), len(p.Left))
	}
	if len(w.node.Annotations) != 0 {
		t.Errorf("annotations left over: %v", w.node.Annotations)
	}
}

func TestPlan_patch_is_bound_to_the_node(t *testing.T) {
	w := newWorld(t, ownershiptest.Pool("a", ownershiptest.Wants(labelKey, "x")))
	w.authorise()
	data, err := w.plan().Patch(w.node)
	if err != nil {
		t.Fatal(err)
	}
	var patch struct {
		Metadata map[string]any `json:"metadata"`
		Spec     map[string]any `json:"spec"`
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata["uid"] != "uid-n1" || patch.Metadata["resourceVersion"] != "7" {
		t.Errorf("preconditions: got %v", patch.Metadata)
	}
	if patch.Spec != nil {
		t.Errorf("taints are sent although they do not change: %s", data)
	}
}

// TestPlan_random_histories checks that whatever pools and people do, cleaning gives back what is not ours, a second
// plan is always empty, and foreign keys never change.
func TestPlan_random_histories(t *testing.T) {
	keys := []ownership.Key{labelKey, annotationKey, taintKey, evictKey}
	values := []string{"x", "y", "z"}
	foreignTaint := corev1.Taint{Key: "foreign", Value: "1", Effect: corev1.TaintEffectNoSchedule}
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, ownershiptest.Pool("a", nil), ownershiptest.Pool("b", nil), ownershiptest.Pool("c", nil))
		for _, pool := range w.pools {
			pool.Spec.ConflictPolicy = flotillav1.NodeConflictPolicyOverride
		}
		w.node.Spec.Taints = []corev1.Taint{foreignTaint}
		w.node.Labels["foreign"] = "1"
		before := map[ownership.Key]string{}
		for _, k := range keys {
			if rng.IntN(2) == 0 {
				w.put(k, "old")
			}
			before[k] = w.get(k)
		}
		for range 12 {
			pool := w.pools[[]string{"a", "b", "c"}[rng.IntN(3)]]
			switch rng.IntN(6) {
			case 0:
				ownershiptest.Wants(keys[rng.IntN(4)], values[rng.IntN(3)])(&pool.Spec)
			case 1:
				pool.Spec.Labels, pool.Spec.Annotations, pool.Spec.Taints = nil, nil, nil
			case 2:
				pool.Spec.Weight = rng.Int32N(100)
			case 3:
				pool.Spec.Paused = !pool.Spec.Paused
			case 4:
				pool.Spec.NodeSelector.MatchLabels["zone"] = flotillav1.LabelValue([]string{"a", "b"}[rng.IntN(2)])
			case 5:
				pool.UID += "'"
				pool.Status = flotillav1.NodePoolStatus{OwnedKeys: pool.Status.OwnedKeys}
			}
			w.settle()
		}
		for name, pool := range w.pools {
			pool.Spec.Paused = false
			w.settle()
			w.deletePool(name)
			w.settle()
		}
		for _, k := range keys {
			if got := w.get(k); got != before[k] {
				t.Errorf("seed %d: %s is %q afterwards, was %q", seed, k, got, before[k])
			}
		}
		if w.node.Labels["foreign"] != "1" || w.node.Spec.Taints[0] != foreignTaint || w.node.Annotations[flotillav1.AnnotationNodeRecord] != "" {
			t.Errorf("seed %d: foreign keys or the record: %v %v %v", seed, w.node.Labels, w.node.Spec.Taints, w.node.Annotations)
		}
	}
}
