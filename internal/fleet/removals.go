// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strconv"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// removalWindow is the time in which the budget may be spent.
const removalWindow = 10 * time.Minute

// Removals limits how many copies are deleted in a while, over all hub objects and members: one mistake on the hub must
// not empty the fleet. It forgets at a restart, but not which hub objects are held: that is published.
type Removals struct {
	budget int
	clock  clock.PassiveClock

	mu sync.Mutex
	// taken is when each copy was let go, by its UID; under mu.
	taken map[types.UID]time.Time
}

// NewRemovals returns a budget of so many deletions in 10 minutes.
func NewRemovals(budget int, clk clock.PassiveClock) *Removals {
	return &Removals{budget: budget, clock: clk, taken: map[types.UID]time.Time{}}
}

// Allow reports whether one more copy may be deleted now. To ask again for the same one costs nothing.
func (r *Removals) Allow(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for known, at := range r.taken {
		if now.Sub(at) >= removalWindow {
			delete(r.taken, known)
		}
	}
	if _, known := r.taken[uid]; known {
		return true
	}
	if len(r.taken) >= r.budget {
		return false
	}
	r.taken[uid] = now
	return true
}

// RemovalConfirmed reports whether a person wants the copies gone that this generation of a hub object removes.
func RemovalConfirmed(object flotillav1.Placeable) bool {
	return object.GetAnnotations()[flotillav1.AnnotationConfirmRemoval] == strconv.FormatInt(object.GetGeneration(), 10)
}

// RemovalHeld reports whether the hub object shows that removals wait for a confirmation. They go on waiting when the
// budget has room again, because the budget exists to have a person look and not to delete slowly, and when the object
// gets another generation, because a change of something else confirms nothing.
func RemovalHeld(object flotillav1.Placeable) bool {
	return apimeta.IsStatusConditionTrue(*object.GetConditions(), flotillav1.ConditionRemovalHeld)
}
