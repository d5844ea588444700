// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

const (
	// ledgerShare is the part of the manager's memory that the caches of all members may need. What objects are stored in
	// needs about as much as a third of them; the rest is for decoding, the controllers and garbage.
	ledgerShare = 3
	// ledgerRelief is the percentage of the limit that is reached before a member is no longer refused, so that the caches
	// are not counted at each event.
	ledgerRelief = 95
)

// cacheMemory returns what the caches of all members may need, depending on the memory limit of the Go runtime. Without
// one there is no limit.
func cacheMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return limit
	}
	return limit / ledgerShare
}

// ledger limits the memory that the caches of all members need together. Each may be within its own limits.
type ledger struct {
	limit int64
	total atomic.Int64 // An upper bound, as the footprints book it.

	mu      sync.Mutex // Guards the field below, and is held while members are counted: those that grow wait.
	members map[*footprint]struct{}
}

// newLedger returns an empty ledger.
func newLedger(limit int64) *ledger {
	return &ledger{limit: limit, members: map[*footprint]struct{}{}}
}

// join adds the footprint of a member.
func (l *ledger) join(f *footprint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members[f] = struct{}{}
}

// leave removes the footprint of a member that has ended.
func (l *ledger) leave(f *footprint) {
	f.unbook()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.members, f)
}

// relieve counts what is cached if the bound exceeds the limit. If too much is cached, it refuses the members with the
// largest caches.
func (l *ledger) relieve() {
	if l.total.Load() <= l.limit {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total.Load() <= l.limit {
		return
	}
	var largest []*footprint
	for f := range l.members {
		largest = append(largest, f)
	}
	order := func(a, b *footprint) int { return cmp.Compare(b.booked(), a.booked()) }
	slices.SortFunc(largest, order)
	for _, f := range largest {
		f.recount()
	}
	slices.SortFunc(largest, order)
	for _, f := range largest {
		if l.total.Load() <= l.limit*ledgerRelief/100 {
			return
		}
		f.exceeded(verdict.RefuseLimit("The caches of all members need more than %d MiB, which is a third of the manager's memory limit, "+
			"and those of this member need the most (%d MiB); raise the limit", l.limit>>20, f.booked()>>20))
		f.unbook()
		delete(l.members, f)
	}
}

// account is what the ledger knows of a footprint.
type account struct {
	mu    sync.Mutex // Guards the fields below.
	bytes int64
	ended bool
}

// book adds to what the caches of the member may need.
func (f *footprint) book(bytes int64) {
	if f.ledger == nil {
		return
	}
	f.account.mu.Lock()
	defer f.account.mu.Unlock()
	if !f.account.ended {
		f.account.bytes += bytes
		f.ledger.total.Add(bytes)
	}
}

// unbook forgets the member, whose caches will be garbage soon.
func (f *footprint) unbook() {
	f.account.mu.Lock()
	defer f.account.mu.Unlock()
	f.ledger.total.Add(-f.account.bytes)
	f.account.bytes, f.account.ended = 0, true
}

// booked returns what the caches of the member may need.
func (f *footprint) booked() int64 {
	f.account.mu.Lock()
	defer f.account.mu.Unlock()
	return f.account.bytes
}

// recount counts what is cached, unless a list is being read: it is in no store yet.
func (f *footprint) recount() {
	if !f.filled.Load() || f.listing() {
		return
	}
	if refused := f.count(); refused != nil {
		f.exceeded(refused)
	}
}
