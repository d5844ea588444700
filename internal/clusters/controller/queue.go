// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// level is the urgency of a request within its lane.
type level int

// The levels, most urgent first.
const (
	// levelFresh is for objects that have just changed.
	levelFresh level = iota
	// levelInitial is for objects that may have changed: initial lists and recoveries.
	levelInitial

	levels
)

// levelOf converts a priority of controller-runtime, whose handlers use a negative one for initial lists.
func levelOf(priority *int) level {
	if ptr.Deref(priority, 0) < 0 {
		return levelInitial
	}
	return levelFresh
}

// priority is the inverse of levelOf.
func (l level) priority() int {
	if l == levelInitial {
		return handler.LowPriority
	}
	return 0
}

// fairQueue is the queue of one controller. The lanes define the order; the queues of client-go around them add delays
// and backoff. It implements priorityqueue.PriorityQueue, so that controller-runtime passes it to the sources unwrapped.
type fairQueue struct {
	workqueue.TypedRateLimitingInterface[clusters.Request]

	lanes   *lanes
	limiter workqueue.TypedRateLimiter[clusters.Request]
	// laterInitial delays requests that return at levelInitial. Those of the embedded queue return at levelFresh.
	laterInitial workqueue.TypedDelayingInterface[clusters.Request]
}

var _ priorityqueue.PriorityQueue[clusters.Request] = &fairQueue{}

func newFairQueue(controller string, workers int, limiter workqueue.TypedRateLimiter[clusters.Request]) *fairQueue {
	lanes := newLanes(workers)
	fresh := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[clusters.Request]{Name: controller, Queue: lanes})
	return &fairQueue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[clusters.Request]{
			DelayingQueue: fresh,
		}),
		lanes:        lanes,
		limiter:      limiter,
		laterInitial: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[clusters.Request]{Queue: initialLanes{lanes}}),
	}
}

// AddWithOpts implements priorityqueue.PriorityQueue. A negative priority means levelInitial.
func (q *fairQueue) AddWithOpts(opts priorityqueue.AddOpts, requests ...clusters.Request) {
	at := levelOf(opts.Priority)
	for _, request := range requests {
		after := opts.After
		if opts.RateLimited {
			after = max(after, q.limiter.When(request))
		}
		switch {
		case after <= 0:
			q.lanes.add(request, at)
		case at == levelInitial:
			q.laterInitial.AddAfter(request, after)
		default:
			q.AddAfter(request, after)
		}
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *fairQueue) GetWithPriority() (clusters.Request, int, bool) {
	request, at, shutdown := q.lanes.get()
	return request, at.priority(), shutdown
}

// ShutDown implements workqueue.TypedInterface.
func (q *fairQueue) ShutDown() {
	q.TypedRateLimitingInterface.ShutDown()
	q.laterInitial.ShutDown()
}

// ShutDownWithDrain implements workqueue.TypedInterface. It returns when no pass is running.
func (q *fairQueue) ShutDownWithDrain() {
	// client-go's delaying queue does not end its goroutine in ShutDownWithDrain.
	q.lanes.ShutDownWithDrain()
	q.ShutDown()
}

// initialLanes adapts the lanes to the delaying queue of client-go. Delayed requests return at levelInitial.
type initialLanes struct{ *lanes }

// Add implements workqueue.TypedInterface.
func (l initialLanes) Add(request clusters.Request) { l.add(request, levelInitial) }

// lanes holds the requests that are ready, in one lane per member and one for the hub, and serves the lanes in turn. It
// deduplicates like the queue of client-go: adding a waiting request can only make it more urgent, and adding a request
// during its pass queues it after the pass.
//
// A member uses at most limit workers while another one waits, and otherwise all but reserve, so that the first request
// of a quiet member finds a free worker even if every pass of a noisy one hangs until its deadline. The hub's lane has no
// limit.
type lanes struct {
	clock clock.PassiveClock

	workers, limit, reserve int

	mu   sync.Mutex
	wake *sync.Cond

	// mu guards the fields below. It is held for map and list operations only.
	byCluster map[multicluster.ClusterName]*lane
	// turns lists the lanes with waiting requests. The first one is next.
	turns *list.List
	// dirty holds the waiting requests and those that were added during their pass.
	dirty      map[clusters.Request]*waiter
	processing map[clusters.Request]struct{}
	waiting    int

	shuttingDown, draining bool
}

var _ workqueue.TypedInterface[clusters.Request] = &lanes{}

// lane holds the waiting and running requests of one member. It exists only while there are any.
type lane struct {
	clusterName multicluster.ClusterName
	waiting     [levels]list.List
	inFlight    int
	// turn is the lane's element in turns. It is nil while no request waits.
	turn *list.Element
}

// waiter is a request that is to be processed.
type waiter struct {
	request clusters.Request
	level   level
	since   time.Time
	// place is the element in the lane. It is nil while a pass of the same request runs.
	place *list.Element
}

func newLanes(workers int) *lanes {
	l := &lanes{
		clock:      clock.RealClock{},
		workers:    workers,
		limit:      max(1, workers/4),
		byCluster:  map[multicluster.ClusterName]*lane{},
		turns:      list.New(),
		dirty:      map[clusters.Request]*waiter{},
		processing: map[clusters.Request]struct{}{},
	}
	if workers > 1 {
		l.reserve = l.limit
	}
	l.wake = sync.NewCond(&l.mu)
	return l
}

// Add implements workqueue.TypedInterface.
func (l *lanes) Add(request clusters.Request) { l.add(request, levelFresh) }

func (l *lanes) add(request clusters.Request, at level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shuttingDown {
		return
	}
	w, known := l.dirty[request]
	switch {
	case !known:
		w = &waiter{request: request, level: at, since: l.clock.Now()}
		l.dirty[request] = w
		if _, runs := l.processing[request]; !runs {
			l.push(w)
			l.wake.Signal()
		}
	case at < w.level:
		if w.place == nil {
			w.level = at
			return
		}
		lane := l.byCluster[request.ClusterName]
		lane.waiting[w.level].Remove(w.place)
		w.level = at
		w.place = lane.waiting[at].PushBack(w)
	}
}

// Len implements workqueue.TypedInterface.
func (l *lanes) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// Get implements workqueue.TypedInterface.
func (l *lanes) Get() (clusters.Request, bool) {
	request, _, shutdown := l.get()
	return request, shutdown
}

func (l *lanes) get() (clusters.Request, level, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.next()
	for ; next == nil; next = l.next() {
		if l.shuttingDown {
			return clusters.Request{}, levelFresh, true
		}
		l.wake.Wait()
	}
	w := l.pop(next)
	delete(l.dirty, w.request)
	l.processing[w.request] = struct{}{}
	// One signal may stand for several requests: pass it on.
	if l.next() != nil {
		l.wake.Signal()
	}
	return w.request, w.level, false
}

// Done implements workqueue.TypedInterface.
func (l *lanes) Done(request clusters.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, runs := l.processing[request]; !runs {
		return
	}
	delete(l.processing, request)
	lane := l.byCluster[request.ClusterName]
	lane.inFlight--
	if w, again := l.dirty[request]; again {
		l.push(w)
	}
	l.removeIfIdle(lane)
	if l.shuttingDown {
		// A worker and ShutDownWithDrain may both be waiting.
		l.wake.Broadcast()
		return
	}
	l.wake.Signal()
}

// ShutDown implements workqueue.TypedInterface. Waiting requests are still returned by Get, without limits.
func (l *lanes) ShutDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shuttingDown, l.draining = true, false
	l.wake.Broadcast()
}

// ShutDownWithDrain implements workqueue.TypedInterface. It returns when no pass is running, or at ShutDown.
func (l *lanes) ShutDownWithDrain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shuttingDown, l.draining = true, true
	l.wake.Broadcast()
	for len(l.processing) > 0 && l.draining {
		l.wake.Wait()
	}
}

// ShuttingDown implements workqueue.TypedInterface.
func (l *lanes) ShuttingDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shuttingDown
}

// laneDepth holds the measurements of a lane.
type laneDepth struct {
	waiting, inFlight int
	oldest            time.Duration
}

// depths returns the measurements of all lanes that are not empty, by cluster name.
func (l *lanes) depths() map[multicluster.ClusterName]laneDepth {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	depths := make(map[multicluster.ClusterName]laneDepth, len(l.byCluster))
	for clusterName, lane := range l.byCluster {
		depth := laneDepth{inFlight: lane.inFlight}
		for i := range lane.waiting {
			depth.waiting += lane.waiting[i].Len()
			if first := lane.waiting[i].Front(); first != nil {
				depth.oldest = max(depth.oldest, now.Sub(first.Value.(*waiter).since))
			}
		}
		depths[clusterName] = depth
	}
	return depths
}

// next returns the lane to serve, or nil if no request may be processed now. It is cheap: at most as many lanes as there
// are workers can be at their limit.
func (l *lanes) next() *lane {
	var least *lane
	for e := l.turns.Front(); e != nil; e = e.Next() {
		lane := e.Value.(*lane)
		if lane.clusterName == "" || lane.inFlight < l.limit || l.shuttingDown {
			return lane
		}
		if least == nil || lane.inFlight < least.inFlight {
			least = lane
		}
	}
	if len(l.processing) < l.workers-l.reserve {
		return least
	}
	return nil
}

// push adds a request to its lane.
func (l *lanes) push(w *waiter) {
	in, ok := l.byCluster[w.request.ClusterName]
	if !ok {
		in = &lane{clusterName: w.request.ClusterName}
		l.byCluster[w.request.ClusterName] = in
	}
	w.place = in.waiting[w.level].PushBack(w)
	l.waiting++
	if in.turn == nil {
		in.turn = l.turns.PushBack(in)
	}
}

// pop removes the most urgent request of a lane and ends its turn.
func (l *lanes) pop(from *lane) *waiter {
	var w *waiter
	left := 0
	for i := range from.waiting {
		if first := from.waiting[i].Front(); first != nil && w == nil {
			w = from.waiting[i].Remove(first).(*waiter)
		}
		left += from.waiting[i].Len()
	}
	w.place = nil
	l.waiting--
	from.inFlight++
	if left > 0 {
		l.turns.MoveToBack(from.turn)
	} else {
		l.turns.Remove(from.turn)
		from.turn = nil
	}
	return w
}

// removeIfIdle removes an empty lane, so that members that come and go do not leak.
func (l *lanes) removeIfIdle(lane *lane) {
	if lane.inFlight == 0 && lane.turn == nil {
		delete(l.byCluster, lane.clusterName)
	}
}
