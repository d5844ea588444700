// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// countedReads counts live reads.
type countedReads struct {
	client.Reader
	reads *atomic.Int64
}

func (c countedReads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	c.reads.Add(1)
	return c.Reader.Get(ctx, key, object, options...)
}

// apartReads counts the live reads of a member.
type apartReads struct {
	cluster.Cluster
	reads *atomic.Int64
}

func (c apartReads) GetAPIReader() client.Reader {
	return countedReads{c.Cluster.GetAPIReader(), c.reads}
}

func TestReconcile_writes_each_copy_of_a_change_once(t *testing.T) {
	f := newManyMembers(t, 4)
	before := f.writes.Load()
	redis := f.placed(func(r *flotillav1.Redis) { r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "2"} })
	// The object, its finalizer, its record, and, in each member, a namespace and a copy with its status.
	if writes := f.writes.Load() - before; writes > 3+3*4 {
		t.Errorf("placing 4 copies made %d writes", writes)
	}
	update(f.fixture, f.hub, redis, setImage(correct))
	hubWrites := &atomic.Int64{}
	f.r.Hub = counting(t, hubServer.Config, hubWrites)
	before = f.writes.Load()
	for _, took := range [][]string{{"m-1"}, {"m-1", "m-2", "m-3"}, f.names} {
		f.run(redis)
		written := f.writes.Load()
		f.become(redis, metav1.ConditionTrue, took...)
		before += f.writes.Load() - written
	}
	if writes := f.writes.Load() - before; writes != 4 {
		t.Errorf("a change of 4 copies made %d writes", writes)
	}
	// One before each batch, and one after the last.
	f.run(redis)
	if hubWrites.Load() != 3+1 {
		t.Errorf("3 batches made %d writes on the hub", hubWrites.Load())
	}
}

func TestReconcile_sends_no_write_that_would_conflict_with_roll_up(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	key := f.r.key(redis)
	rolledUp := redis.DeepCopy()
	rolledUp.ResourceVersion = "9223372036854775807"
	f.r.Table.RolledUp.Wrote(key, rolledUp)
	f.pass(redis, "")
	if result := f.pass(redis, ""); result.RequeueAfter != conflictDelay {
		t.Errorf("the next pass is in %v, want it when the cache shows the other write", result.RequeueAfter)
	}
	if f.get(f.hub, redis); len(redis.Status.PlacedIn) != 0 {
		t.Errorf("the record is %v, want none", redis.Status.PlacedIn)
	}
	f.r.Table.RolledUp.Forget(key)
	f.settle(redis)
	if f.get(f.hub, redis); !slices.Equal(redis.Status.PlacedIn, []string{eu1}) {
		t.Errorf("the record is %v", redis.Status.PlacedIn)
	}
}

func TestReconcile_a_deletion_asks_and_writes_once(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed()
	reads, memberReads := &atomic.Int64{}, &atomic.Int64{}
	f.r.HubReader = countedReads{f.r.HubReader, reads}
	for _, name := range f.names {
		f.directory.Engage(multicluster.ClusterName(name), apartReads{f.engaged(name), memberReads})
		f.directory.Change(multicluster.ClusterName(name), func(s *clusters.Snapshot) { s.Incarnation = 3 })
	}
	f.delete(redis)
	before := f.writes.Load()
	f.run(redis)
	if f.get(f.hub, redis) {
		t.Fatal("the hub object is still there")
	}
	// A deletion in each member, and the finalizer.
	if writes := f.writes.Load() - before; writes != 4+1 || reads.Load() != 1 || memberReads.Load() != 0 {
		t.Errorf("%d writes, %d live reads of the hub and %d of members, want 5, 1 and none", writes, reads.Load(), memberReads.Load())
	}
}

func TestReconcile_only_the_caches_that_showed_a_deletion_prove_it(t *testing.T) {
	f := newManyMembers(t, 1)
	redis := f.placed()
	memberReads := &atomic.Int64{}
	f.directory.Engage("m-1", apartReads{f.engaged("m-1"), memberReads})
	f.directory.Change("m-1", func(s *clusters.Snapshot) { s.Incarnation = 3 })
	f.delete(redis)
	f.pass(redis, "m-1")
	f.directory.Change("m-1", func(s *clusters.Snapshot) { s.Incarnation = 4 })
	f.run(redis)
	if f.get(f.hub, redis) || memberReads.Load() != 1 {
		t.Errorf("%d live reads of the member, want one", memberReads.Load())
	}
}

func TestRemovalLog_gathers_while_a_write_is_on_its_way(t *testing.T) {
	log := removalLog{}
	var batches [][]fleet.Removal
	started, proceed := make(chan struct{}), make(chan struct{})
	write := func(_ context.Context, _ string, removals []fleet.Removal) error {
		if batches = append(batches, removals); len(batches) == 1 {
			close(started)
			<-proceed
		}
		return nil
	}
	var group sync.WaitGroup
	record := func(uid types.UID) {
		group.Go(func() {
			if err := log.record(context.Background(), fleet.Removal{Cluster: eu1, UID: uid}, write); err != nil {
				t.Error(err)
			}
		})
	}
	record("first")
	<-started
	for _, uid := range []types.UID{"a", "b", "c"} {
		record(uid)
	}
	waiting := func() int {
		log.mu.Lock()
		defer log.mu.Unlock()
		if log.open[eu1] == nil {
			return 0
		}
		return len(log.open[eu1].removals)
	}
	for waiting() < 3 {
		runtime.Gosched()
	}
	close(proceed)
	group.Wait()
	if len(batches) != 2 || len(batches[1]) != 3 {
		t.Errorf("%v", batches)
	}
}
