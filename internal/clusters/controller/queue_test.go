// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

// take gets n requests, which must be there, and leaves their passes running.
func take(t *testing.T, l *lanes, n int) []clusters.Request {
	t.Helper()
	var taken []clusters.Request
	for range n {
		l.mu.Lock()
		empty := l.next() == nil
		l.mu.Unlock()
		if empty {
			t.Fatalf("the queue gives only %d of %d requests: %v", len(taken), n, taken)
		}
		request, shutdown := l.Get()
		if shutdown {
			t.Fatal("the queue is shut down")
		}
		taken = append(taken, request)
	}
	return taken
}

// takeAll gets and ends requests until nothing is left.
func takeAll(l *lanes) []string {
	var names []string
	for l.Len() > 0 {
		request, _ := l.Get()
		names = append(names, request.String())
		l.Done(request)
	}
	return names
}

func holds(l *lanes) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next() == nil
}

func TestLanes_quiet_member_waits_for_at_most_one_of_a_noisy_one(t *testing.T) {
	l := newLanes(16)
	for i := range 5000 {
		l.Add(clusterstest.Request("noisy", fmt.Sprint(i)))
	}
	for range 10 {
		l.Done(take(t, l, 1)[0])
	}
	l.Add(clusterstest.Request("quiet", "one"))
	if got := take(t, l, 2); got[0].ClusterName != "quiet" && got[1].ClusterName != "quiet" {
		t.Errorf("the request of the quiet member did not come within two: %v", got)
	}
}

func TestLanes_members_take_turns(t *testing.T) {
	l := newLanes(1)
	for _, clusterName := range []multicluster.ClusterName{"a", "b", "c"} {
		for i := range 3 {
			l.Add(clusterstest.Request(clusterName, fmt.Sprint(i)))
		}
	}
	l.Add(clusterstest.Request("", "hub"))
	want := []string{
		"cluster://a/default/0", "cluster://b/default/0", "cluster://c/default/0", "default/hub",
		"cluster://a/default/1", "cluster://b/default/1", "cluster://c/default/1",
		"cluster://a/default/2", "cluster://b/default/2", "cluster://c/default/2",
	}
	if diff := cmp.Diff(want, takeAll(l)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(l.byCluster) != 0 || l.turns.Len() != 0 || len(l.dirty) != 0 || len(l.processing) != 0 {
		t.Errorf("an empty queue keeps something: %+v", l)
	}
}

func TestLanes_limit_of_a_member(t *testing.T) {
	tests := map[string]struct {
		workers int
		// wantAlone is how many workers a member gets when no other one waits, and wantBeside when one does.
		wantAlone, wantBeside int
	}{
		"one worker is for everybody":              {workers: 1, wantAlone: 1, wantBeside: 0},
		"two workers leave one":                    {workers: 2, wantAlone: 1, wantBeside: 1},
		"four workers leave one":                   {workers: 4, wantAlone: 3, wantBeside: 1},
		"sixteen workers leave a quarter":          {workers: 16, wantAlone: 12, wantBeside: 4},
		"seventeen workers leave a quarter, floor": {workers: 17, wantAlone: 13, wantBeside: 4},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLanes(tc.workers)
			for i := range 100 {
				l.Add(clusterstest.Request("noisy", fmt.Sprint(i)))
			}
			take(t, l, tc.wantAlone)
			if !holds(l) {
				t.Errorf("a member alone gets more than %d of %d workers", tc.wantAlone, tc.workers)
			}
			for i := range 100 {
				l.Add(clusterstest.Request("second", fmt.Sprint(i)))
			}
			for range tc.wantBeside {
				if got := take(t, l, 1)[0]; got.ClusterName != "second" {
					t.Errorf("a member over its limit got a worker while another one waited: %v", got)
				}
			}
		})
	}
}

func TestLanes_member_over_its_limit_shrinks_while_another_waits(t *testing.T) {
	l := newLanes(8)
	for i := range 100 {
		l.Add(clusterstest.Request("noisy", fmt.Sprint(i)))
	}
	running := take(t, l, 6)
	for i := range 100 {
		l.Add(clusterstest.Request("second", fmt.Sprint(i)))
		l.Add(clusterstest.Request("third", fmt.Sprint(i)))
	}
	take(t, l, 2)
	// The passes of the noisy member end one by one, and what they free goes to the others.
	counts := map[multicluster.ClusterName]int{}
	for _, request := range running[:4] {
		l.Done(request)
		if !holds(l) {
			counts[take(t, l, 1)[0].ClusterName]++
		}
	}
	if counts["noisy"] != 0 {
		t.Errorf("a member over its limit was served while others waited: %v", counts)
	}
}

func TestLanes_hub_has_no_limit(t *testing.T) {
	l := newLanes(8)
	for i := range 20 {
		l.Add(clusterstest.Request("", fmt.Sprint(i)))
	}
	take(t, l, 8)
}

func TestLanes_worker_waits_for_the_end_of_a_pass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(4)
		for i := range 4 {
			l.Add(clusterstest.Request("noisy", fmt.Sprint(i)))
		}
		running := take(t, l, 3)
		got := make(chan clusters.Request, 1)
		go func() {
			request, _ := l.Get()
			got <- request
		}()
		synctest.Wait()
		select {
		case request := <-got:
			t.Fatalf("the reserved worker was given away: %v", request)
		default:
		}
		l.Done(running[0])
		synctest.Wait()
		select {
		case <-got:
		default:
			t.Fatal("the end of a pass did not wake the waiting worker")
		}
	})
}

func TestLanes_a_request_is_passed_once_at_a_time(t *testing.T) {
	l := newLanes(4)
	one := clusterstest.Request("a", "one")
	l.Add(one)
	l.Add(one)
	if got := l.Len(); got != 1 {
		t.Errorf("a request added twice waits %d times", got)
	}
	take(t, l, 1)
	l.Add(one)
	l.add(one, levelInitial)
	if l.Len() != 0 || !holds(l) {
		t.Error("a request is given out while its pass runs")
	}
	l.Done(one)
	if got := take(t, l, 1); got[0] != one {
		t.Errorf("what was added during the pass is lost: %v", got)
	}
	l.Done(one)
	l.Done(one)
	if l.Len() != 0 || len(l.byCluster) != 0 {
		t.Errorf("something is left: %+v", l)
	}
}

func TestLanes_fresh_before_initial(t *testing.T) {
	l := newLanes(4)
	for i := range 3 {
		l.add(clusterstest.Request("a", fmt.Sprintf("initial-%d", i)), levelInitial)
	}
	l.Add(clusterstest.Request("a", "fresh-0"))
	l.Add(clusterstest.Request("a", "initial-2"))
	l.add(clusterstest.Request("a", "fresh-0"), levelInitial)
	want := []string{"cluster://a/default/fresh-0", "cluster://a/default/initial-2", "cluster://a/default/initial-0", "cluster://a/default/initial-1"}
	if diff := cmp.Diff(want, takeAll(l)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestLanes_raised_during_the_pass(t *testing.T) {
	l := newLanes(4)
	one := clusterstest.Request("a", "one")
	l.Add(one)
	take(t, l, 1)
	l.add(one, levelInitial)
	l.Add(one)
	l.add(clusterstest.Request("a", "other"), levelInitial)
	l.Done(one)
	if got, at, _ := l.get(); got != one || at != levelFresh {
		t.Errorf("a change seen during the pass is not fresh: got %v at level %d", got, at)
	}
}

func TestLanes_shut_down(t *testing.T) {
	t.Run("hands out what waits, without limits, then ends", func(t *testing.T) {
		l := newLanes(4)
		for i := range 6 {
			l.Add(clusterstest.Request("a", fmt.Sprint(i)))
		}
		l.ShutDown()
		l.Add(clusterstest.Request("a", "late"))
		take(t, l, 6)
		if _, shutdown := l.Get(); !shutdown || !l.ShuttingDown() {
			t.Error("an empty queue that is shut down gives something out")
		}
	})
	t.Run("wakes all workers", func(*testing.T) {
		l := newLanes(4)
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() { l.Get() })
		}
		l.ShutDown()
		workers.Wait()
	})
	t.Run("drains", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLanes(4)
			l.Add(clusterstest.Request("a", "one"))
			running := take(t, l, 1)[0]
			drained := make(chan struct{})
			go func() {
				l.ShutDownWithDrain()
				close(drained)
			}()
			synctest.Wait()
			select {
			case <-drained:
				t.Fatal("drained while a pass runs")
			default:
			}
			l.Done(running)
			<-drained
		})
	})
	t.Run("stops draining", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLanes(4)
			l.Add(clusterstest.Request("a", "one"))
			take(t, l, 1)
			drained := make(chan struct{})
			go func() {
				l.ShutDownWithDrain()
				close(drained)
			}()
			synctest.Wait()
			l.ShutDown()
			<-drained
		})
	})
}

// TestLanes_workers_lose_nothing runs real workers against adders: every request that is added has a pass that begins
// after it was added, no two passes of one request overlap, and no limit is broken.
func TestLanes_workers_lose_nothing(t *testing.T) {
	const workers, adders, adds, members = 8, 4, 3000, 5
	l := newLanes(workers)
	var mu sync.Mutex
	added, seen := map[clusters.Request]int{}, map[clusters.Request]int{}
	running := map[clusters.Request]bool{}

	var pool, feed sync.WaitGroup
	for range workers {
		pool.Go(func() {
			for {
				request, shutdown := l.Get()
				if shutdown {
					return
				}
				mu.Lock()
				if running[request] {
					t.Errorf("two passes of %v at once", request)
				}
				running[request] = true
				seen[request] = added[request]
				mu.Unlock()

				mu.Lock()
				running[request] = false
				mu.Unlock()
				l.Done(request)
			}
		})
	}
	for range adders {
		feed.Go(func() {
			for range adds {
				request := clusterstest.Request(multicluster.ClusterName(fmt.Sprint(rand.IntN(members))), fmt.Sprint(rand.IntN(50)))
				mu.Lock()
				added[request]++
				mu.Unlock()
				l.add(request, level(rand.IntN(int(levels))))
			}
		})
	}
	feed.Wait()
	l.ShutDown()
	pool.Wait()
	if diff := cmp.Diff(added, seen); diff != "" {
		t.Errorf("additions that no pass has seen (-added +seen):\n%s", diff)
	}
	if len(l.byCluster)+len(l.dirty)+len(l.processing)+l.waiting != 0 {
		t.Errorf("%d requests in %d lanes are left, %d dirty, %d under way", l.waiting, len(l.byCluster), len(l.dirty), len(l.processing))
	}
}

func TestLanes_depths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(4)
		l.add(clusterstest.Request("a", "one"), levelInitial)
		time.Sleep(2 * time.Second)
		l.Add(clusterstest.Request("a", "two"))
		l.Add(clusterstest.Request("b", "one"))
		time.Sleep(time.Second)
		want := map[multicluster.ClusterName]laneDepth{"a": {waiting: 2, oldest: 3 * time.Second}, "b": {waiting: 1, oldest: time.Second}}
		if diff := cmp.Diff(want, l.depths(), cmp.AllowUnexported(laneDepth{})); diff != "" {
			t.Errorf("depths (-want +got):\n%s", diff)
		}
	})
}

func TestFairQueue_levels_survive_the_backoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[clusters.Request](time.Second, time.Minute)
		queue := newFairQueue("test", 4, limiter)
		defer queue.ShutDown()
		initial, fresh, now := clusterstest.Request("a", "initial"), clusterstest.Request("a", "fresh"), clusterstest.Request("a", "now")
		queue.AddWithOpts(priorityqueue.AddOpts{RateLimited: true, Priority: new(handler.LowPriority)}, initial)
		queue.AddWithOpts(priorityqueue.AddOpts{After: time.Second}, fresh)
		queue.AddWithOpts(priorityqueue.AddOpts{}, now)
		if request, _, _ := queue.GetWithPriority(); request != now {
			t.Errorf("want the request without delay first, got %v", request)
		}
		if queue.Len() != 0 {
			t.Error("a delayed request is there already")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		var got []string
		for range 2 {
			request, priority, _ := queue.GetWithPriority()
			got = append(got, fmt.Sprint(request.Name, " ", priority))
		}
		if diff := cmp.Diff([]string{"fresh 0", fmt.Sprint("initial ", handler.LowPriority)}, got); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if got := queue.NumRequeues(initial); got != 1 {
			t.Errorf("failures of a rate-limited request: got %d, want 1", got)
		}
		queue.Forget(initial)
		if got := queue.NumRequeues(initial); got != 0 {
			t.Errorf("failures of a forgotten request: got %d, want 0", got)
		}
	})
}

func TestFairQueue_shut_down_leaves_nothing_running(t *testing.T) {
	for name, stop := range map[string]func(*fairQueue){"at once": (*fairQueue).ShutDown, "drained": (*fairQueue).ShutDownWithDrain} {
		t.Run(name, func(t *testing.T) {
			// The test fails when a goroutine is left.
			synctest.Test(t, func(t *testing.T) {
				limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[clusters.Request](time.Second, time.Minute)
				queue := newFairQueue("test", 4, limiter)
				queue.AddAfter(clusterstest.Request("a", "late"), time.Hour)
				stop(queue)
				if _, _, shutdown := queue.GetWithPriority(); !shutdown {
					t.Error("a queue that is shut down gives something out")
				}
			})
		})
	}
}

func BenchmarkLanes(b *testing.B) {
	l := newLanes(16)
	requests := make([]clusters.Request, 10000)
	for i := range requests {
		requests[i] = clusterstest.Request(multicluster.ClusterName(fmt.Sprint(i%100)), fmt.Sprint(i))
	}
	for chunk := range slices.Chunk(requests, 100) {
		for _, request := range chunk {
			l.Add(request)
		}
	}
	for b.Loop() {
		request, _ := l.Get()
		l.Done(request)
		l.Add(request)
	}
}
