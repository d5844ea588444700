// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool/ownership/ownershiptest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestNews_many_nodes_are_told_of_together(t *testing.T) {
	few, many := map[string]nodeNews{}, map[string]nodeNews{}
	for i := range maxSingleEvents + 1 {
		name := fmt.Sprintf("n%02d", i)
		many[name] = nodeNews{uid: types.UID("uid-" + name)}
		if i < maxSingleEvents {
			few[name] = many[name]
		}
	}
	told := func(n news) []string {
		var out []string
		for _, event := range n.events() {
			related := ""
			if event.Related != nil {
				related = fmt.Sprintf(" (%s, %s)", event.Related.GetName(), event.Related.GetUID())
			}
			out = append(out, event.Type+" "+event.Reason+" "+event.Action+": "+event.Note+related)
		}
		return out
	}
	if got := told(news{joined: few}); len(got) != maxSingleEvents || got[9] != "Normal NodeJoined Join: Node n09 joined the pool (n09, uid-n09)" {
		t.Errorf("ten nodes: got %q", got)
	}
	want := []string{
		"Normal NodesJoined Join: 11 nodes joined the pool: n00, n01, n02 and 8 more",
		"Normal NodeLeft Leave: Node a left the pool (a, u)",
		"Normal NodeHealed Heal: Restored keys of node b that someone else had changed: label x/y, taint x/y:NoSchedule (b, v)",
	}
	got := told(news{joined: many, left: map[string]nodeNews{"a": {uid: "u"}}, healed: map[string]nodeNews{"b": {"v", []string{"taint x/y:NoSchedule", "label x/y"}}}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestLedger_a_node_that_is_gone_has_left_once(t *testing.T) {
	at, pool := nodeKey{memberName, "n1"}, poolKey{memberName, "a"}
	seen := func(uid, version, record string) func(*Ledger) {
		return func(l *Ledger) {
			node := ownershiptest.Node("n1", nil)
			node.UID, node.ResourceVersion = types.UID(uid), version
			node.Annotations = map[string]string{flotillav1.AnnotationNodeRecord: record}
			l.observeNode(at, node)
		}
	}
	ended := func(l *Ledger) { l.nodeGone(at, ownershiptest.Now.Time) }
	const in, out = `{"pools":{"a":{"uid":"u"}}}`, ""
	tests := map[string]struct {
		steps []func(*Ledger)
		want  map[string]nodeNews
	}{
		"one that was in a pool":                    {steps: []func(*Ledger){seen("u1", "5", in), ended}, want: map[string]nodeNews{"n1": {uid: "u1"}}},
		"one that was in none":                      {steps: []func(*Ledger){seen("u1", "5", out), ended}},
		"one that was never seen":                   {steps: []func(*Ledger){ended}},
		"one that had left before":                  {steps: []func(*Ledger){seen("u1", "5", in), seen("u1", "6", out), ended}},
		"late word of a version before it left":     {steps: []func(*Ledger){seen("u1", "6", out), seen("u1", "5", in), ended}},
		"late word after its end":                   {steps: []func(*Ledger){seen("u1", "5", in), ended, func(l *Ledger) { l.news.remove(pool) }, seen("u1", "5", in), ended}},
		"another of the name":                       {steps: []func(*Ledger){seen("u1", "5", in), seen("u2", "9", out)}, want: map[string]nodeNews{"n1": {uid: "u1"}}},
		"late word of the one before":               {steps: []func(*Ledger){seen("u1", "5", in), seen("u2", "9", in), func(l *Ledger) { l.news.remove(pool) }, seen("u1", "7", in), seen("u2", "9", in)}},
		"versions that are no numbers are believed": {steps: []func(*Ledger){seen("u1", "x", out), seen("u1", "y", in), ended}, want: map[string]nodeNews{"n1": {uid: "u1"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := NewLedger()
			for _, step := range tc.steps {
				step(l)
			}
			if diff := cmp.Diff(tc.want, l.news.remove(pool).left, cmp.AllowUnexported(nodeNews{})); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
	l := NewLedger()
	seen("u1", "5", in)(l)
	ended(l)
	l.nodeGone(at, ownershiptest.Now.Time)
	seen("u2", "6", in)(l)
	l.nodeGone(at, ownershiptest.Now.Add(2*goneFor))
	if len(l.seen.byNode) != 0 || len(l.seen.gone) != 1 {
		t.Errorf("what is over is kept: %v %v", l.seen.byNode, l.seen.gone)
	}
	l.forgetPool(pool)
	if len(l.news.remove(pool).events()) > 0 {
		t.Error("a pool that is gone has news")
	}
}

func TestSetup_joins_and_leaves_are_told_completely(t *testing.T) {
	const many = 12
	g := NewWithT(t)
	h := newHarness(t, shared)
	names := make([]string, 0, many)
	for i := range many {
		names = append(names, fmt.Sprintf("news-%02d", i))
	}
	h.run()
	h.newNodes("news", names...)
	h.create(selecting("news", everything))
	told := func(reason string) func() int {
		return func() int {
			h.mu.Lock()
			defer h.mu.Unlock()
			nodes := 0
			for _, event := range h.events {
				switch event.Reason {
				case "Node" + reason:
					nodes++
				case "Nodes" + reason:
					var n int
					if _, err := fmt.Sscanf(event.Note, "%d nodes", &n); err != nil {
						t.Errorf("note %q: %v", event.Note, err)
					}
					nodes += n
				}
			}
			return nodes
		}
	}
	eventually := func(reason string, want int) {
		t.Helper()
		g.Eventually(told(reason)).WithPolling(50 * time.Millisecond).Should(Equal(want))
	}
	eventually("Joined", many)

	// The Node itself is deleted: a member's autoscaler does that.
	h.delete(h.node(names[0]))
	eventually("Left", 1)
	// Deleted and back under its name at once: one left, one joined.
	h.delete(h.node(names[1]))
	again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: names[1], Labels: map[string]string{"flotilla.test/pool": "news"}}}
	g.Expect(h.api.Create(context.Background(), again)).To(Succeed())
	eventually("Left", 2)
	eventually("Joined", many+1)
	// Moved out by its label.
	node := h.node(names[2])
	h.update(node, func() { delete(node.Labels, "flotilla.test/pool") })
	eventually("Left", 3)
	// A key that someone takes away comes back, with an event.
	node = h.node(names[3])
	h.update(node, func() { delete(node.Labels, labelKey.Name) })
	g.Eventually(func() string { return strings.Join(h.reasons("news"), " ") }).Should(ContainSubstring("NodeHealed"))

	// The nodes of a deleted pool have not left it.
	h.delete(h.pool("news"))
	g.Eventually(func() string { return strings.Join(h.reasons("news"), " ") }).Should(ContainSubstring("CleanupCompleted"))
	g.Expect(told("Left")()).To(Equal(3))
	g.Expect(told("Joined")()).To(Equal(many + 1))
}

// TestReconcile_without_rights_on_nodes takes the rights themselves away, not just an answer.
func TestReconcile_without_rights_on_nodes(t *testing.T) {
	ctx := context.Background()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "less"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"flotilla.dev", "node.k8s.io", "apiextensions.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "less"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "less"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "hub"}},
	}
	for _, obj := range []client.Object{role, binding} {
		if err := shared.Client.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shared.Client.Delete(ctx, obj) })
	}
	mayPatch := func(verbs ...string) {
		role.Rules[0].Verbs = append([]string{"get", "list", "watch"}, verbs...)
		if err := shared.Client.Update(ctx, role); err != nil {
			t.Fatal(err)
		}
	}
	h := newHarness(t, &testenv.Cluster{Config: shared.User(t, "hub"), Client: shared.Client})
	h.newNodes("rights", "rights-1", "rights-2")
	h.create(selecting("rights", everything))
	denied := func(g Gomega) {
		pool := h.pool("rights")
		ready := condition(pool, flotillav1.ConditionReady)
		g.Expect(ready.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(ready.Reason).To(Equal(flotillav1.ReasonForbidden))
		g.Expect(ready.Message).To(ContainSubstring(`cannot patch resource "nodes"`))
	}
	h.until("rights", denied)
	if got := h.pool("rights").Status.Status; got != statusFailed {
		t.Errorf("status: got %d", got)
	}
	if diff := cmp.Diff([]string{"Forbidden", "RuntimeClassCreated"}, h.reasons("rights")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	mayPatch("patch")
	h.applied("rights", 2)
	before := []*metav1.ObjectMeta{&h.node("rights-1").ObjectMeta, &h.node("rights-2").ObjectMeta}

	// The rights go while the pool is deleted: everything stays, and the condition says why.
	mayPatch()
	h.delete(h.pool("rights"))
	h.until("rights", denied)
	for i, name := range []string{"rights-1", "rights-2"} {
		if diff := cmp.Diff(before[i], &h.node(name).ObjectMeta); diff != "" {
			t.Errorf("node %s changed:\n%s", name, diff)
		}
	}
	if got := strings.Join(h.reasons("rights"), " "); !strings.Contains(got, "CleanupBlocked") {
		t.Errorf("events: got %s", got)
	}
	mayPatch("patch")
	h.until("rights", func(g Gomega) {
		g.Expect(apierrors.IsNotFound(h.api.Get(ctx, client.ObjectKey{Name: "rights"}, &flotillav1.NodePool{}))).To(BeTrue())
	})
	for _, name := range []string{"rights-1", "rights-2"} {
		if node := h.node(name); node.Labels[labelKey.Name] != "" || len(node.Annotations)+len(node.Spec.Taints) > 0 {
			t.Errorf("node %s is not as it was: %v %v", name, node.Labels, node.Spec.Taints)
		}
	}
}
