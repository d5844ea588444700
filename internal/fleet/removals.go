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

// RemovalWindow is the period of the removal budget.
const RemovalWindow = 10 * time.Minute

// minRemovals is the minimum that a share allows.
const minRemovals = 2

// Removals limits the number of copies that are deleted per RemovalWindow, over all hub objects and members: one mistake on
// the hub must neither empty the fleet nor remove most copies of one object. Each removal is recorded in the MemberCluster
// before the copy is deleted, so that the window survives a restart.
type Removals struct {
	budget int
	clock  clock.PassiveClock
	// Share is the percentage of the fleet's copies, and of those of one hub object, that may be removed; 0 means no such
	// limit. The deletion of one hub object may remove all of its copies. Share must be set before the first use.
	Share int

	mu sync.Mutex
	// taken are the allowed removals by the UID of the copy; guarded by mu.
	taken map[types.UID]Removal
}

// Removal is the removal of one copy.
type Removal struct {
	Key     ObjectKey
	Cluster string
	UID     types.UID
	At      time.Time
}

// Census counts the copies that hub objects record.
type Census struct {
	// Fleet is the number of all copies, and Object that of the hub object concerned.
	Fleet, Object int
	// Deleting reports whether that object is being deleted.
	Deleting bool
	// Records reports whether a copy is recorded.
	Records func(key ObjectKey, clusterName string) bool
}

// NewRemovals returns Removals that allow budget deletions per RemovalWindow.
func NewRemovals(budget int, clk clock.PassiveClock) *Removals {
	return &Removals{budget: budget, clock: clk, taken: map[types.UID]Removal{}}
}

// Allowed reports whether the deletion of this copy has already been allowed. It needs no census.
func (r *Removals) Allowed(removal Removal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, found := r.taken[removal.UID]
	return found && r.clock.Now().Sub(known.At) < RemovalWindow
}

// Allow reports whether one more copy may be deleted. Repeated calls for the same copy count once. recorded are the
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
		// The shares refer to the number of copies at the beginning of the window.
		if !census.Records(other.Key, other.Cluster) {
			fleet++
			if same {
				object++
			}
		}
	}
	fleetLimit, objectLimit := r.share(fleet), r.share(object)
	if census.Deleting {
		// The deletion of an object intends the removal of all its copies. Only the deletion of several objects may be a mistake.
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

// Binds reports whether the limits can ever hold a removal in a fleet with that many copies. A budget of more than twice
// all copies cannot, so its removals need not be recorded.
func (r *Removals) Binds(fleet int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Share > 0 || r.budget <= 2*(fleet+len(r.taken))
}

func (r *Removals) share(copies int) int { return max(minRemovals, copies*r.Share/100) }

// RemovalConfirmed reports whether a person has confirmed the removals of this generation of a hub object.
func RemovalConfirmed(object flotillav1.Placeable) bool {
	return object.GetAnnotations()[flotillav1.AnnotationConfirmRemoval] == strconv.FormatInt(object.GetGeneration(), 10)
}

// RemovalHeld reports whether removals of the hub object wait for a confirmation. They continue to wait when the budget
// allows more again, because the purpose of the budget is a decision by a person and not a slow deletion. They also
// continue to wait when the generation changes, because a change of something else is no confirmation.
func RemovalHeld(object flotillav1.Placeable) bool {
	return apimeta.IsStatusConditionTrue(*object.GetConditions(), flotillav1.ConditionRemovalHeld)
}
