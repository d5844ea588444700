// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// gone expects that the API server has no such pool.
func (h *harness) gone(g Gomega, poolName string) {
	err := h.api.Get(context.Background(), client.ObjectKey{Name: poolName}, &flotillav1.NodePool{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
}

func TestReconcile_deletion_beats_paused_and_dry_run(t *testing.T) {
	tests := map[string]struct {
		hold func(*flotillav1.NodePoolSpec)
		// want is what becomes of the keys.
		want string
	}{
		"held-paused": {func(spec *flotillav1.NodePoolSpec) { spec.Paused = true }, absent},
		"held-dry":    {func(spec *flotillav1.NodePoolSpec) { spec.DryRun = true }, absent},
		"held-both":   {func(spec *flotillav1.NodePoolSpec) { spec.Paused, spec.DryRun = true, true }, absent},
		"held-orphan": {func(spec *flotillav1.NodePoolSpec) {
			spec.Paused, spec.DeletionPolicy = true, flotillav1.NodeDeletionPolicyOrphan
		}, "x"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, shared)
			h.newNodes(name, name+"-1", name+"-2")
			h.create(selecting(name, valued("x")))
			pool := h.applied(name, 2)
			h.update(pool, func() { tc.hold(&pool.Spec) })
			h.until(name, func(g Gomega) { g.Expect(h.pool(name).Status.ObservedGeneration).To(Equal(h.pool(name).Generation)) })
			h.delete(pool)
			h.until(name, func(g Gomega) { h.gone(g, name) })
			for _, node := range []string{name + "-1", name + "-2"} {
				if got := h.valuesOf(node); !slices.Equal(got, []string{tc.want, tc.want, tc.want}) {
					t.Errorf("%s: got %v, want %s", node, got, tc.want)
				}
				if text := h.node(node).Annotations[flotillav1.AnnotationNodeRecord]; text != "" {
					t.Errorf("%s keeps a record: %s", node, text)
				}
			}
		})
	}
}

func TestReconcile_pool_that_was_a_dry_run_all_along_just_goes(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("alldry", "alldry-1")
	h.create(selecting("alldry", func(spec *flotillav1.NodePoolSpec) { valued("x")(spec); spec.DryRun = true }))
	h.until("alldry", func(g Gomega) { g.Expect(h.pool("alldry").Status.Plan).NotTo(BeNil()) })
	h.delete(h.pool("alldry"))
	h.gone(NewWithT(t), "alldry")
	if writes := h.wire.count("/nodes/"); writes != 0 {
		t.Errorf("a dry run made %d writes", writes)
	}
}

func TestReconcile_deletion_waits_for_a_paused_member(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("away", "away-1")
	h.create(selecting("away", valued("x")))
	pool := h.applied("away", 1)
	h.update(pool, func() { pool.Spec.Paused = true })
	setPaused := func(paused bool) {
		h.members.Change(memberName, func(s *clusters.Snapshot) { s.Paused = paused })
	}
	setPaused(true)
	h.delete(pool)
	before := h.wire.count("")
	for range 5 {
		if err := h.round("away"); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.wire.count("") - before; n != 0 {
		t.Errorf("a paused member took %d writes", n)
	}
	if got := h.valuesOf("away-1"); strings.Join(got, "") != "xxx" {
		t.Errorf("a paused member was cleaned: %v", got)
	}
	setPaused(false)
	h.until("away", func(g Gomega) { h.gone(g, "away") })
	if got := h.valuesOf("away-1"); !slices.Equal(got, []string{absent, absent, absent}) {
		t.Errorf("got %v", got)
	}
}

// TestReconcile_pool_waits_for_patches_on_their_way deletes a pool while a node is about to join it: what is written for
// a pool that is gone would stay on the node for ever.
func TestReconcile_pool_waits_for_patches_on_their_way(t *testing.T) {
	h := newHarness(t, shared)
	h.newNodes("late", "late-1")
	h.create(selecting("late", valued("x")))
	h.applied("late", 1)
	h.newNodes("late", "late-2")
	deleted := false
	h.wire.intercept(func(write string) *http.Response {
		if deleted || !strings.HasPrefix(write, "PATCH /api/v1/nodes/late-2") {
			return nil
		}
		deleted = true
		h.delete(h.pool("late"))
		pass := func() {
			h.clock.SetTime(h.clock.Now().Add(lagInterval))
			_, _ = h.pools.Reconcile(context.Background(), request(memberName, "late"))
			_, _ = h.nodes.Reconcile(context.Background(), request(memberName, "late-1"))
		}
		NewWithT(t).Eventually(func(g Gomega) {
			pass()
			g.Expect(h.node("late-1").Annotations).NotTo(HaveKey(flotillav1.AnnotationNodeRecord))
		}).WithTimeout(20 * time.Second).WithPolling(20 * time.Millisecond).Should(Succeed())
		h.cached(h.node("late-1"))
		for range 3 {
			pass()
		}
		return nil
	})
	h.until("late", func(g Gomega) {
		g.Expect(deleted).To(BeTrue())
		h.gone(g, "late")
	})
	if got := h.valuesOf("late-2"); !slices.Equal(got, []string{absent, absent, absent}) {
		t.Errorf("a node carries keys of a pool that is gone: %v", got)
	}
}
