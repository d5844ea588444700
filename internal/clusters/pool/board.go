// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"maps"
	"reflect"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
)

// board is the wanted and the published state of a member, for concurrent use. Only the member's goroutine changes the
// published state.
type board struct {
	mu     sync.Mutex // Guards the fields below; never held while blocking.
	wanted registration.Registration
	// lostAt is when the registration vanished; zero while there is one. leaving is true once the member is being
	// offboarded.
	lostAt    time.Time
	leaving   bool
	published publication
	// permission is the right to write to the member.
	permission clusters.Permission
	engaged    *memberCluster
	events     []hubEvent
}

// want sets the wanted registration and reports whether it changed. It is ignored once the member is being offboarded.
func (b *board) want(wanted registration.Registration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaving || b.lostAt.IsZero() && b.wanted.Same(wanted) {
		return false
	}
	b.wanted, b.lostAt = wanted, time.Time{}
	return true
}

// lose records that the registration has vanished, and reports whether that is new.
func (b *board) lose(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaving || !b.lostAt.IsZero() {
		return false
	}
	b.lostAt = now
	return true
}

// leaveIfLost starts the offboarding unless the registration has returned, and reports whether it did.
func (b *board) leaveIfLost() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lostAt.IsZero() {
		return false
	}
	b.leaving = true
	return true
}

// leave records that the registration is gone.
func (b *board) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaving = true
}

// asked returns the wanted registration, when it vanished, and whether the member is to be offboarded. Until then, a
// member without a registration counts as paused.
func (b *board) asked() (wanted registration.Registration, lostAt time.Time, leaving bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.registered(), b.lostAt, b.leaving
}

// registered returns the wanted registration as it applies now. The caller must hold the mutex.
func (b *board) registered() registration.Registration {
	wanted := b.wanted
	wanted.Paused = wanted.Paused || !b.lostAt.IsZero() && !b.leaving
	return wanted
}

// writeState is what decides whether a member may be written.
type writeState struct {
	// wanted is what the registration asks for; shown is what is published.
	wanted     registration.Registration
	shown      clusters.Snapshot
	permission clusters.Permission
}

// writeState returns what decides whether the member may be written, as of one moment.
func (b *board) writeState() writeState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return writeState{wanted: b.registered(), shown: b.published.snapshot, permission: b.permission}
}

// permitted returns how long the member may be written, as far as its claim is concerned.
func (b *board) permitted(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.permission.Left(now)
}

// grant sets the permission to write; the zero permission revokes it.
func (b *board) grant(granted clusters.Permission) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.permission = granted
}

// holder returns the Secret that owns the cluster name.
func (b *board) holder() registration.SecretRef {
	wanted, _, _ := b.asked()
	return wanted.Secret
}

// change applies a change to the publication. It reports whether the snapshot changed, and whether anything did.
func (b *board) change(change func(*publication)) (visible, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.published
	next.verdicts = maps.Clone(next.verdicts)
	change(&next)
	visible = !reflect.DeepEqual(next.snapshot, b.published.snapshot)
	changed = visible || !reflect.DeepEqual(next, b.published)
	b.published = next
	return visible, changed
}

// publication returns the state to publish.
func (b *board) publication() publication {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published
}

// snapshot returns the published snapshot.
func (b *board) snapshot() clusters.Snapshot { return b.publication().snapshot }

// engage sets the engaged cluster; nil means none.
func (b *board) engage(engaged *memberCluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.engaged = engaged
}

// cluster returns the engaged cluster, or nil.
func (b *board) cluster() cluster.Cluster {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.engaged == nil {
		return nil
	}
	return b.engaged
}

// cachedObjects returns the number of cached objects, and whether the member is engaged.
func (b *board) cachedObjects() (objects int, engaged bool) {
	b.mu.Lock()
	c := b.engaged
	b.mu.Unlock()
	if c == nil {
		return 0, false
	}
	return c.cached.stored(), true
}

// note queues an event.
func (b *board) note(event hubEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, event)
}

// takeEvents removes and returns the queued events.
func (b *board) takeEvents() []hubEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}
