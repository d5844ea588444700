// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// poolFixture has many members and a NodePool with a NoExecute taint.
type poolFixture struct {
	*manyMembers
	pool *flotillav1.NodePool
}

func newPoolFixture(t *testing.T, n int) *poolFixture {
	t.Helper()
	f := &poolFixture{manyMembers: newManyMembers(t, n), pool: &flotillav1.NodePool{}}
	f.r.Kind = fleet.NodePool
	f.pool.Name = hubServer.Namespace(t)
	f.pool.Spec = flotillav1.NodePoolSpec{
		Placement:    &flotillav1.Placement{All: true},
		NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"pool": "gpu"}},
		Taints:       []flotillav1.NodePoolTaint{{Key: "example.com/gpu", Effect: corev1.TaintEffectNoExecute}},
	}
	return f
}

func (f *poolFixture) run() {
	f.t.Helper()
	for range 4 {
		f.pass(f.pool, "")
		for _, name := range f.names {
			f.pass(f.pool, name)
		}
	}
}

// placedIn returns the members whose copy satisfies a condition.
func (f *poolFixture) placedIn(like func(*flotillav1.NodePool) bool) []string {
	f.t.Helper()
	var names []string
	for _, name := range f.names {
		placed := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: f.pool.Name}}
		if f.get(apart{f.member, name}, placed) && like(placed) {
			names = append(names, name)
		}
	}
	return names
}

// become makes members report the pool as applied, with so many of ten nodes ready.
func (f *poolFixture) become(readyNodes int32, names ...string) {
	f.t.Helper()
	for _, name := range names {
		placed := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: f.pool.Name}}
		member := apart{f.member, name}
		if !f.get(member, placed) {
			f.t.Fatalf("there is no copy in %s", name)
		}
		member.inward(placed)
		placed.Status.ObservedGeneration, placed.Status.NodeCount, placed.Status.ReadyNodes = placed.Generation, 10, readyNodes
		placed.Status.Conditions = []metav1.Condition{{
			Type: flotillav1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(noon),
		}}
		if err := f.member.Status().Update(context.Background(), placed); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *poolFixture) wantIn(what string, like func(*flotillav1.NodePool) bool, names ...string) {
	f.t.Helper()
	if got := f.placedIn(like); !slices.Equal(got, names) {
		f.t.Errorf("the pool %s in %v, want it in %v", what, got, names)
	}
}

func exists(*flotillav1.NodePool) bool { return true }

func TestWaves_a_new_pool_that_evicts_goes_to_one_cluster_first(t *testing.T) {
	f := newPoolFixture(t, 3)
	f.create(f.hub, f.pool)
	f.run()
	f.wantIn("exists", exists, "m-1")
	f.clock.Step(time.Hour)
	f.run()
	f.wantIn("exists", exists, "m-1")
	f.become(10, "m-1")
	f.run()
	f.wantIn("exists", exists, "m-1", "m-2")
	f.become(10, "m-2")
	f.run()
	f.wantIn("exists", exists, f.names...)

	// A pool that does not evict is created everywhere at once.
	quiet := newPoolFixture(t, 3)
	quiet.pool.Spec.Taints[0].Effect = "NoSchedule"
	quiet.create(quiet.hub, quiet.pool)
	quiet.run()
	quiet.wantIn("exists", exists, quiet.names...)
}

func TestWaves_a_pool_waits_for_nodes_that_got_worse(t *testing.T) {
	f := newPoolFixture(t, 3)
	f.pool.Spec.Taints[0].Effect = "NoSchedule"
	f.create(f.hub, f.pool)
	f.run()
	// A node of m-1 is not ready before the change either.
	f.become(9, "m-1")
	f.become(10, "m-2", "m-3")
	update(f.fixture, f.hub, f.pool, func(p *flotillav1.NodePool) { p.Spec.Taints[0].Effect = "NoExecute" })
	changed := func(p *flotillav1.NodePool) bool { return p.Spec.Taints[0].Effect == "NoExecute" }
	f.run()
	f.wantIn("changed", changed, "m-1")
	f.become(9, "m-1")
	f.run()
	f.wantIn("changed", changed, "m-1", "m-2")
	f.become(4, "m-2")
	f.run()
	f.wantIn("changed", changed, "m-1", "m-2")
	f.clock.Step(time.Hour)
	f.run()
	f.wantIn("changed", changed, "m-1", "m-2")
	f.become(10, "m-2")
	f.run()
	f.wantIn("changed", changed, f.names...)
}
