// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// budgetsKept is up to how many budgets are kept before those are dropped that nothing was taken from for long.
const budgetsKept = 1000

// budget is how many events about one thing may still be told.
type budget struct {
	limiter *rate.Limiter
	// suppressed counts the events over the limit that nobody has been told of yet. While it is not zero a timer runs.
	suppressed int
}

// budgets limit the events about each of many things, and tell what was over the limit: the first event over it starts a
// timer, so that tell comes at most once each suppressedDelay and needs no budget.
type budgets[K comparable] struct {
	clock clock.WithDelayedExecution
	// all limits the events about all of them together; nil does not.
	all *rate.Limiter
	// tell says how many events were suppressed.
	tell func(about K, count int)

	mu sync.Mutex
	of map[K]*budget
}

// allow takes an event from the budget of what it is about.
func (b *budgets[K]) allow(about K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	one, found := b.of[about]
	if !found {
		b.tidyLocked()
		one = &budget{limiter: rate.NewLimiter(eventsPerSecond, eventBurst)}
		b.of[about] = one
	}
	if one.limiter.AllowN(now, 1) && (b.all == nil || b.all.AllowN(now, 1)) {
		return true
	}
	one.suppressed++
	if one.suppressed == 1 {
		b.clock.AfterFunc(suppressedDelay, func() { b.tellSuppressed(about, one) })
	}
	return false
}

func (b *budgets[K]) tellSuppressed(about K, one *budget) {
	b.mu.Lock()
	count, current := one.suppressed, b.of[about] == one
	one.suppressed = 0
	b.mu.Unlock()
	if current {
		b.tell(about, count)
	}
}

// forget drops the budget of what is gone, and what was suppressed.
func (b *budgets[K]) forget(about K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, about)
}

// tidyLocked drops budgets that are as new ones would be, when there are many. It needs mu.
func (b *budgets[K]) tidyLocked() {
	if len(b.of) < budgetsKept {
		return
	}
	now := b.clock.Now()
	for about, one := range b.of {
		if one.suppressed == 0 && one.limiter.TokensAt(now) >= eventBurst {
			delete(b.of, about)
		}
	}
}

// tellSuppressed records how many events of a member were suppressed.
func (r *recorder) tellSuppressed(clusterName multicluster.ClusterName, count int) {
	r.hub.Eventf(r.memberReference(clusterName), nil, corev1.EventTypeWarning, reasonEventsSuppressed, actionSuppress, "%s",
		hubNote(clusterName, fmt.Sprintf("Suppressed %d events over the limit of %d per second", count, eventsPerSecond)))
}

// forgetIfGone drops the budget of a member that has been offboarded.
func (r *recorder) forgetIfGone(clusterName multicluster.ClusterName) {
	if _, registered := r.Members.Snapshot(clusterName); !registered {
		r.budgets.forget(clusterName)
	}
}
