// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"strconv"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// RemovalWindow is the time in which the budget may be spent.
const RemovalWindow = 10 * time.Minute

// minRemovals is what a share of few copies allows at least.
const minRemovals = 2

// Removals limits how many copies are deleted in a while, over all hub objects and members: one mistake on the hub must
// not empty the fleet, nor take most of one object. What was spent is recorded in the members' MemberClusters before a copy
// is deleted, so that a restart does not begin anew.
type Removals struct {
	budget int
	clock  clock.PassiveClock
	// Share is the part of the fleet's copies, and of those of one hub object, that may go, in percent; 0 is no such
	// limit. One hub object that is deleted may lose all of its copies. It is set before the first use.
	Share int

	mu sync.Mutex
	// taken are the copies that were let go, by UID; under mu.
	taken map[types.UID]Removal
}

// Removal is one copy that is let go.
type Removal struct {
	Key     ObjectKey
	Cluster string
	UID     types.UID
	At      time.Time
}

// Census counts copies as the hub objects record them.
type Census struct {
	// Fleet counts all copies, and Object those of the hub object concerned.
	Fleet, Object int
	// Deleting reports whether that object is being deleted.
	Deleting bool
	// Records reports whether a copy is among them.
	Records func(key ObjectKey, clusterName string) bool
}

// NewRemovals returns a budget of so many deletions in 10 minutes.
func NewRemovals(budget int, clk clock.PassiveClock) *Removals {
	return &Removals{budget: budget, clock: clk, taken: map[types.UID]Removal{}}
}

// Allowed reports whether the deletion of this copy has been allowed already, which needs no census.
func (r *Removals) Allowed(removal Removal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, found := r.taken[removal.UID]
	return found && r.clock.Now().Sub(known.At) < RemovalWindow
}

// Allow reports whether one more copy may be deleted now. Asking again for the same one costs nothing. recorded are the
// removals that this or an earlier process has recorded.
func (r *Removals) Allow(removal Removal, recorded []Removal, census Census) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, other := range recorded {
		if _, known := r.taken[other.UID]; !known {
			r.taken[other.UID] = other
		}
	}
	maps.DeleteFunc(r.taken, func(_ types.UID, other Removal) bool { return now.Sub(other.At) >= RemovalWindow })
	if _, known := r.taken[removal.UID]; known {
		return true
	}
	spent, spentOnObject := len(r.taken), 0
	fleet, object := census.Fleet, census.Object
	for _, other := range r.taken {
		same := other.Key == removal.Key
		if same {
			spentOnObject++
		}
		// The shares are of what there was when the window began.
		if !census.Records(other.Key, other.Cluster) {
			fleet++
			if same {
				object++
			}
		}
	}
	fleetLimit, objectLimit := r.share(fleet), r.share(object)
	if census.Deleting {
		// Who deletes an object means all of its copies. Only the deletion of several can be more than was meant.
		objectLimit = object
		if spent == spentOnObject {
			fleetLimit = max(fleetLimit, object)
		}
	}
	if spent >= r.budget || r.Share > 0 && (spent >= fleetLimit || spentOnObject >= objectLimit) {
		return false
	}
	removal.At = now
	r.taken[removal.UID] = removal
	return true
}

// Binds reports whether the limits may come to hold a copy of a fleet of so many. A budget of more than twice all copies
// does not, and is not worth a record that survives a restart.
func (r *Removals) Binds(fleet int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Share > 0 || r.budget <= 2*(fleet+len(r.taken))
}

func (r *Removals) share(copies int) int { return max(minRemovals, copies*r.Share/100) }

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
