// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// memory caches results of passes over a hub object for later passes. Losing it only costs reads. The zero value is
// empty.
type memory struct {
	mu       sync.Mutex
	byObject map[fleet.ObjectKey]remembered
}

type remembered struct {
	uid types.UID
	// kindStays is when the hub last confirmed that the kind is not being removed, while the object is being deleted.
	kindStays time.Time
	// passed are clusters on trial that have passed, and passedAt is since when that is not recorded.
	passed   fleet.Trials
	passedAt time.Time
}

// keptKind records that the kind of an object that is being deleted is not being removed.
func (m *memory) keptKind(key fleet.ObjectKey, uid types.UID, now time.Time) {
	m.change(key, uid, func(known *remembered) { known.kindStays = now })
}

// keepsKind reports whether keptKind was called for the object within the given time.
func (m *memory) keepsKind(key fleet.ObjectKey, uid types.UID, now time.Time, span time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byObject[key]
	return known.uid == uid && !known.kindStays.IsZero() && now.Sub(known.kindStays) < span
}

// pass returns how long a write that only records that some clusters have passed may wait for one that is needed anyway.
// A cluster that has passed is not on trial even if nothing can be seen of it when that is recorded.
func (m *memory) pass(key fleet.ObjectKey, uid types.UID, passed fleet.Trials, now time.Time, pace time.Duration) (rest time.Duration) {
	m.change(key, uid, func(known *remembered) {
		known.passed = passed
		if known.passedAt.IsZero() {
			known.passedAt = now
		}
		rest = known.passedAt.Add(pace).Sub(now)
	})
	return max(rest, 0)
}

// recordedTrials is called when the record shows which clusters have passed.
func (m *memory) recordedTrials(key fleet.ObjectKey, uid types.UID) {
	m.change(key, uid, func(known *remembered) { known.passedAt = time.Time{} })
}

// passed returns the clusters that have passed, which the record may still list.
func (m *memory) passed(key fleet.ObjectKey, uid types.UID) fleet.Trials {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.byObject[key]; known.uid == uid {
		return known.passed
	}
	return nil
}

func (m *memory) change(key fleet.ObjectKey, uid types.UID, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.byObject[key]
	if known.uid != uid {
		known = remembered{uid: uid}
	}
	change(&known)
	if m.byObject == nil {
		m.byObject = map[fleet.ObjectKey]remembered{}
	}
	m.byObject[key] = known
}

func (m *memory) forget(key fleet.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byObject, key)
}
