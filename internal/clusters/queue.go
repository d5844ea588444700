// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
)

// level says how urgent a request is within its lane.
type level int

// The levels, most urgent first.
const (
	// levelFresh is for what has just changed.
	levelFresh level = iota
	// levelInitial is for what may have changed: initial lists and recoveries.
	levelInitial

	levels
)

// levelOf translates a priority of controller-runtime, whose own handlers give initial lists a negative one.
func levelOf(priority *int) level {
	if ptr.Deref(priority, 0) < 0 {
		return levelInitial
	}
	return levelFresh
}

// priority is the opposite of levelOf.
func (l level) priority() int {
	if l == levelInitial {
		return handler.LowPriority
	}
	return 0
}

// fairQueue is the queue of one controller: the lanes decide the order, client-go's queues around them add delays and
// the backoff. It is a priorityqueue.PriorityQueue, so that controller-runtime hands it to the sources as it is.
type fairQueue struct {
	workqueue.TypedRateLimitingInterface[Request]

	lanes   *lanes
	limiter workqueue.TypedRateLimiter[Request]
	// laterInitial delays requests that come back at levelInitial; the embedded queue's come back fresh.
	laterInitial workqueue.TypedDelayingInterface[Request]
}

var _ priorityqueue.PriorityQueue[Request] = &fairQueue{}

func newFairQueue(controller string, workers int, limiter workqueue.TypedRateLimiter[Request]) *fairQueue {
	lanes := newLanes(workers)
	fresh := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Request]{Name: controller, Queue: lanes})
	return &fairQueue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[Request]{
			DelayingQueue: fresh,
		}),
		lanes:        lanes,
		limiter:      limiter,
		laterInitial: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Request]{Queue: initialLanes{lanes}}),
	}
}

// AddWithOpts implements priorityqueue.PriorityQueue. A negative priority means levelInitial.
func (q *fairQueue) AddWithOpts(opts priorityqueue.AddOpts, requests ...Request) {
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
func (q *fairQueue) GetWithPriority() (Request, int, bool) {
	request, at, shutdown := q.lanes.get()
	return request, at.priority(), shutdown
}

// ShutDown implements workqueue.TypedInterface.
func (q *fairQueue) ShutDown() {
	q.TypedRateLimitingInterface.ShutDown()
	q.laterInitial.ShutDown()
}

// ShutDownWithDrain implements workqueue.TypedInterface. It returns when no pass runs any more.
func (q *fairQueue) ShutDownWithDrain() {
	// client-go's delaying queue does not end its goroutine in ShutDownWithDrain.
	q.lanes.ShutDownWithDrain()
	q.ShutDown()
}

// initialLanes are the lanes for client-go's delaying queue whose requests come back at levelInitial.
type initialLanes struct{ *lanes }

// Add implements workqueue.TypedInterface.
func (l initialLanes) Add(request Request) { l.add(request, levelInitial) }

// lanes hold the requests that are ready, in one lane per member and one for the hub, and take turns between them.
// A request is in them once: added while it waits it only becomes more urgent, added while its pass runs it waits for
// the end of the pass. That is what client-go's queue does as well.
//
// A member uses at most limit workers while another one waits, and when none does at most all but reserve, so that the
// first request of a quiet member finds a worker even if every pass of the noisy one hangs until its deadline.
// The hub's lane has no limit.
type lanes struct {
	clock clock.PassiveClock

	workers, limit, reserve int

	mu   sync.Mutex
	wake *sync.Cond

	// All below is under mu. The lock is held for map and list operations only.
	byCluster map[multicluster.ClusterName]*lane
	// turns lists the lanes with waiting requests; the first one is next.
	turns *list.List
	// dirty holds what has to be passed: what waits, and what was added while its pass runs.
	dirty      map[Request]*waiter
	processing map[Request]struct{}
	waiting    int

	shuttingDown, draining bool
}

var _ workqueue.TypedInterface[Request] = &lanes{}

// lane is what waits and runs for one member. It exists while there is either.
type lane struct {
	clusterName multicluster.ClusterName
	waiting     [levels]list.List
	inFlight    int
	// turn is the lane's place in turns, nil when nothing waits.
	turn *list.Element
}

// waiter is a request that has to be passed.
type waiter struct {
	request Request
	level   level
	since   time.Time
	// place in the lane, nil while the pass of the same request runs.
	place *list.Element
}

func newLanes(workers int) *lanes {
	l := &lanes{
		clock:      clock.RealClock{},
		workers:    workers,
		limit:      max(1, workers/4),
		byCluster:  map[multicluster.ClusterName]*lane{},
		turns:      list.New(),
		dirty:      map[Request]*waiter{},
		processing: map[Request]struct{}{},
	}
	if workers > 1 {
		l.reserve = l.limit
	}
	l.wake = sync.NewCond(&l.mu)
	return l
}

// Add implements workqueue.TypedInterface.
func (l *lanes) Add(request Request) { l.add(request, levelFresh) }

func (l *lanes) add(request Request, at level) {
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
func (l *lanes) Get() (Request, bool) {
	request, _, shutdown := l.get()
	return request, shutdown
}

func (l *lanes) get() (Request, level, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.next()
	for ; next == nil; next = l.next() {
		if l.shuttingDown {
			return Request{}, levelFresh, true
		}
		l.wake.Wait()
	}
	w := l.pop(next)
	delete(l.dirty, w.request)
	l.processing[w.request] = struct{}{}
	// One signal may stand for more than one request that can be taken: pass it on.
	if l.next() != nil {
		l.wake.Signal()
	}
	return w.request, w.level, false
}

// Done implements workqueue.TypedInterface.
func (l *lanes) Done(request Request) {
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
		// Both a worker and ShutDownWithDrain may be waiting.
		l.wake.Broadcast()
		return
	}
	l.wake.Signal()
}

// ShutDown implements workqueue.TypedInterface. What waits is still handed out, without limits.
func (l *lanes) ShutDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shuttingDown, l.draining = true, false
	l.wake.Broadcast()
}

// ShutDownWithDrain implements workqueue.TypedInterface. It returns when no pass runs any more, or at ShutDown.
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

// laneDepth is what the metrics tell about a lane.
type laneDepth struct {
	waiting, inFlight int
	oldest            time.Duration
}

// depths returns what waits and runs by cluster name; lanes without anything are left out.
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

// next returns the lane whose turn it is, or nil when no request may be taken now. The lanes at their limit are at most
// as many as there are workers, so it does not go far.
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

// push puts a request in its lane.
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

// pop takes the most urgent request of a lane and ends its turn.
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

// removeIfIdle forgets a lane without work, so that members come and go without a trace.
func (l *lanes) removeIfIdle(lane *lane) {
	if lane.inFlight == 0 && lane.turn == nil {
		delete(l.byCluster, lane.clusterName)
	}
}
