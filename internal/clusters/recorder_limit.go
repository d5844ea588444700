// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// budget is how many events of a member may still be told.
type budget struct {
	limiter *rate.Limiter
	// suppressed counts the events over the limit that nobody has been told of yet. While it is not zero a timer runs.
	suppressed int
}

// allow takes an event from the budget of a member. The first one over it starts the timer that tells their number.
func (r *recorder) allow(clusterName multicluster.ClusterName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.budgets[clusterName]
	if !ok {
		b = &budget{limiter: rate.NewLimiter(eventsPerSecond, eventBurst)}
		r.budgets[clusterName] = b
	}
	if b.limiter.AllowN(r.Clock.Now(), 1) {
		return true
	}
	b.suppressed++
	if b.suppressed == 1 {
		r.Clock.AfterFunc(suppressedDelay, func() { r.tellSuppressed(clusterName, b) })
	}
	return false
}

// tellSuppressed records how many events of a member were suppressed. It comes at most once each suppressedDelay, so it
// needs no budget.
func (r *recorder) tellSuppressed(clusterName multicluster.ClusterName, b *budget) {
	r.mu.Lock()
	count, current := b.suppressed, r.budgets[clusterName] == b
	b.suppressed = 0
	r.mu.Unlock()
	if !current {
		return
	}
	r.hub.Eventf(r.memberReference(clusterName), nil, corev1.EventTypeWarning, reasonEventsSuppressed, actionSuppress, "%s",
		hubNote(clusterName, fmt.Sprintf("Suppressed %d events over the limit of %d per second", count, eventsPerSecond)))
}

// forgetIfGone drops the budget of a member that has been offboarded.
func (r *recorder) forgetIfGone(clusterName multicluster.ClusterName) {
	if _, registered := r.Members.Snapshot(clusterName); registered {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.budgets, clusterName)
}
