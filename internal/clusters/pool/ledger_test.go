// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
)

// hoard is a member in a ledger.
type hoard struct {
	*footprint
	store     toolscache.Store
	transform toolscache.TransformFunc
	isListing bool
	refused   error
}

// newHoard adds a member that has filled its caches.
func newHoard(t *testing.T, l *ledger) *hoard {
	t.Helper()
	h := &hoard{store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	h.footprint = &footprint{
		limits: transport.Limits{}.WithDefaults(), clock: clock.RealClock{}, lifetime: t.Context(), ledger: l,
		exceeded: func(err error) { h.refused = err }, listing: func() bool { return h.isListing },
	}
	h.transform = h.counted(cache.TransformStripManagedFields())
	l.join(h.footprint)
	if err := h.fill([]toolscache.Store{h.store}); err != nil {
		t.Fatal(err)
	}
	return h
}

// receive caches so many objects of 1 MiB.
func (h *hoard) receive(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		object, err := h.transform(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, Data: map[string]string{"key": strings.Repeat("x", 1<<20)}})
		if err == nil {
			err = h.store.Add(object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLedger_refuses_the_member_with_the_largest_caches(t *testing.T) {
	l := newLedger(20 << 20)
	small, large := newHoard(t, l), newHoard(t, l)
	large.receive(t, 0, 12)
	for range 10 {
		small.receive(t, 0, 5)
	}
	if small.refused != nil || large.refused != nil {
		t.Fatalf("changes were taken for objects: %v %v", small.refused, large.refused)
	}
	small.receive(t, 5, 9)
	if small.refused != nil || large.refused == nil || !strings.Contains(large.refused.Error(), "need more than 20 MiB") || !strings.Contains(large.refused.Error(), "(12 MiB)") {
		t.Errorf("small: %v, large: %v", small.refused, large.refused)
	}
	if total := l.total.Load(); total < 8<<20 || total > 10<<20 {
		t.Errorf("the refused member is still counted: %d", total)
	}
	large.receive(t, 12, 20)
	l.leave(large.footprint)
	l.leave(small.footprint)
	if total := l.total.Load(); total != 0 || len(l.members) != 0 {
		t.Errorf("%d bytes are left over, of %d members", total, len(l.members))
	}
}

func TestLedger_counts_a_list_that_is_not_stored(t *testing.T) {
	l := newLedger(20 << 20)
	member := newHoard(t, l)
	member.isListing = true
	for range 21 {
		if _, err := member.transform(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"key": strings.Repeat("x", 1<<20)}}); err != nil {
			t.Fatal(err)
		}
	}
	if member.refused == nil {
		t.Error("a list that is in no store is not counted")
	}
}

func TestCacheMemory_is_a_third_of_the_limit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64]int64{3 << 30: 1 << 30, math.MaxInt64: math.MaxInt64} {
		debug.SetMemoryLimit(limit)
		if got := cacheMemory(); got != want {
			t.Errorf("%d: got %d", limit, got)
		}
	}
}
