// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// budgetsKept is the number of budgets above which unused ones are dropped.
const budgetsKept = 1000

// budget limits the events about one subject.
type budget struct {
	limiter *rate.Limiter
	// suppressed counts the events over the limit that have not been reported. A timer runs while it is not zero.
	suppressed int
}

// budgets limits the events about each of many subjects, and reports those over the limit. The first one over it starts a
// timer, so report is called at most once per suppressedDelay and subject, and needs no limit itself.
type budgets[K comparable] struct {
	clock clock.WithDelayedExecution
	// all limits the events about all subjects together. Nil means unlimited.
	all *rate.Limiter
	// report reports the number of suppressed events.
	report func(about K, count int)

	mu sync.Mutex
	of map[K]*budget
}

// allow reports whether an event is within the limits, and counts it.
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
		b.clock.AfterFunc(suppressedDelay, func() { b.reportSuppressed(about, one) })
	}
	return false
}

func (b *budgets[K]) reportSuppressed(about K, one *budget) {
	b.mu.Lock()
	count, current := one.suppressed, b.of[about] == one
	one.suppressed = 0
	b.mu.Unlock()
	if current {
		b.report(about, count)
	}
}

// forget removes the budget of a subject and its unreported count.
func (b *budgets[K]) forget(about K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, about)
}

// tidyLocked removes full budgets if there are many. The caller must hold mu.
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

// reportSuppressed records the number of suppressed events of a member.
func (r *recorder) reportSuppressed(clusterName multicluster.ClusterName, count int) {
	r.hub.Eventf(r.memberReference(clusterName), nil, corev1.EventTypeWarning, reasonEventsSuppressed, actionSuppress, "%s",
		hubNote(clusterName, fmt.Sprintf("Suppressed %d events over the limit of %d per second", count, eventsPerSecond)))
}

// forgetIfGone removes the budget of an offboarded member.
func (r *recorder) forgetIfGone(clusterName multicluster.ClusterName) {
	if _, registered := r.Members.Snapshot(clusterName); !registered {
		r.budgets.forget(clusterName)
	}
}
