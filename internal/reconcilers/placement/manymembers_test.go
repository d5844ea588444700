// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// apart is a member that shares an API server with others: its namespace a is a-<name> there.
type apart struct {
	client.Client
	name string
}

func (a apart) inward(o metav1.Object) {
	if o.GetNamespace() == "" {
		o.SetName(o.GetName() + "-" + a.name)
		return
	}
	o.SetNamespace(o.GetNamespace() + "-" + a.name)
}

func (a apart) outward(o metav1.Object) {
	if o.GetNamespace() == "" {
		o.SetName(o.GetName()[:len(o.GetName())-len(a.name)-1])
		return
	}
	o.SetNamespace(o.GetNamespace()[:len(o.GetNamespace())-len(a.name)-1])
}

func (a apart) with(o metav1.Object, do func() error) error {
	a.inward(o)
	defer a.outward(o)
	return do()
}

func (a apart) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	a.inward(o)
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(o), o, options...)
	if err == nil {
		a.outward(o)
	}
	return err
}

func (a apart) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return a.with(o, func() error { return a.Client.Create(ctx, o, options...) })
}

func (a apart) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return a.with(o, func() error { return a.Client.Delete(ctx, o, options...) })
}

func (a apart) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return a.with(o, func() error { return a.Client.Patch(ctx, o, client.RawPatch(patch.Type(), data), options...) })
}

func (a apart) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return a.with(o.(metav1.Object), func() error { return a.Client.Apply(ctx, o, options...) })
}

// manyMembers is a fixture with members m-1 to m-n.
type manyMembers struct {
	*fixture
	clock *clocktesting.FakeClock
	names []string
	// perCluster is how many objects may change in a cluster at a time after the next restart; 0 means no limit.
	perCluster int
}

func newManyMembers(t *testing.T, n int) *manyMembers {
	t.Helper()
	return newNamedMembers(t, "m-", n)
}

// newNamedMembers has members of which no other test knows.
func newNamedMembers(t *testing.T, prefix string, n int) *manyMembers {
	t.Helper()
	f := &manyMembers{fixture: newFixture(t, fleet.Redis), clock: clocktesting.NewFakeClock(noon)}
	f.r.Clock = f.clock
	f.directory.Replace()
	for i := range n {
		name := fmt.Sprintf("%s%d", prefix, i+1)
		f.names = append(f.names, name)
		f.directory.Set(snapshotOf(name))
		f.directory.Engage(multicluster.ClusterName(name), uncached{client: apart{Client: f.member, name: name}})
	}
	return f
}

// run runs passes for every member until nothing changes, as the watches would.
func (f *manyMembers) run(redis *flotillav1.Redis) {
	f.t.Helper()
	quiet := 0
	for range 20 {
		before := f.writes.Load()
		f.round(redis)
		if quiet++; f.writes.Load() != before {
			quiet = 0
		}
		// The first round of a change may only grant permits.
		if quiet == 2 {
			return
		}
	}
	f.t.Error("the passes do not come to an end")
}

// round runs each copy pass once, and the hub pass again.
func (f *manyMembers) round(redis *flotillav1.Redis) {
	f.t.Helper()
	f.pass(redis, "")
	for _, name := range f.names {
		f.pass(redis, name)
	}
	f.pass(redis, "")
}

// copyIn reads the copy in a member; nil when there is none.
func (f *manyMembers) copyIn(redis *flotillav1.Redis, name string) *flotillav1.Redis {
	f.t.Helper()
	placed := copyOf(redis)
	if !f.get(apart{f.member, name}, placed) {
		return nil
	}
	return placed
}

// with returns the members whose copy satisfies a condition.
func (f *manyMembers) with(redis *flotillav1.Redis, like func(*flotillav1.Redis) bool) []string {
	f.t.Helper()
	var names []string
	for _, name := range f.names {
		if placed := f.copyIn(redis, name); placed != nil && like(placed) {
			names = append(names, name)
		}
	}
	return names
}

// become makes members report their present copies as ready or not ready.
func (f *manyMembers) become(redis *flotillav1.Redis, ready metav1.ConditionStatus, names ...string) {
	f.t.Helper()
	for _, name := range names {
		placed := f.copyIn(redis, name)
		(apart{f.member, name}).inward(placed)
		placed.Status.ObservedGeneration = placed.Generation
		apimeta.SetStatusCondition(&placed.Status.Conditions, metav1.Condition{
			Type: flotillav1.ConditionReady, Status: ready, Reason: "Test", LastTransitionTime: metav1.NewTime(f.clock.Now()),
		})
		if err := f.member.Status().Update(context.Background(), placed); err != nil {
			f.t.Fatal(err)
		}
	}
}

// restart drops everything that a process keeps in memory.
func (f *manyMembers) restart() {
	f.r = &Reconciler{
		Kind: f.r.Kind, Hub: f.r.Hub, HubReader: f.r.HubReader, Members: f.r.Members, Table: fleet.NewTable(), Events: f.r.Events,
		Clock: f.r.Clock, Options: f.r.Options,
	}
	f.r.Table.Slots = fleet.NewSlots(f.perCluster)
}

// placed returns a Redis with a ready copy in all members.
func (f *manyMembers) placed(change ...func(*flotillav1.Redis)) *flotillav1.Redis {
	f.t.Helper()
	redis := f.newRedis(change...)
	f.run(redis)
	f.become(redis, metav1.ConditionTrue, f.names...)
	return redis
}

// unreachable makes members unreachable, and back brings them back.
func (f *manyMembers) unreachable(names ...string) {
	for _, name := range names {
		f.directory.Change(multicluster.ClusterName(name), func(s *clusters.Snapshot) { s.State = clusters.StateUnreachable })
	}
}

func (f *manyMembers) back(names ...string) {
	for _, name := range names {
		f.directory.Change(multicluster.ClusterName(name), func(s *clusters.Snapshot) { s.State = clusters.StateReady })
	}
}

func image(want string) func(*flotillav1.Redis) bool {
	return func(r *flotillav1.Redis) bool { return r.Spec.Image == want }
}

func setImage(image string) func(*flotillav1.Redis) {
	return func(r *flotillav1.Redis) { r.Spec.Image = image }
}

func (f *manyMembers) wantImage(redis *flotillav1.Redis, want string, names ...string) {
	f.t.Helper()
	if got := f.with(redis, image(want)); !slices.Equal(got, names) {
		f.t.Errorf("image %q is in %v, want it in %v", want, got, names)
	}
}
