// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// objectPace is the time between two writes of the status of one hub object, and how long numbers are collected.
	objectPace = time.Second
	// summaryPace is the time between two writes of the counts of one MemberCluster.
	summaryPace = 10 * time.Second
)

// Pace holds writes back: transitions go at once, numbers are collected for one interval, and nothing is written twice
// within one. It also keeps a pass from acting on a cache that does not show the last write yet.
type Pace struct {
	interval time.Duration
	clock    clock.PassiveClock
	// takesOver says that another process may have written until now.
	takesOver bool

	mu sync.Mutex
	// began is when somebody asked first, if takesOver; under mu.
	began time.Time
	// wrote is when each key was written last, and since when numbers of it have been waiting; under mu.
	wrote, since map[string]time.Time
}

// NewPace returns a Pace with that interval.
func NewPace(interval time.Duration, clk clock.PassiveClock) *Pace {
	return &Pace{interval: interval, clock: clk, wrote: map[string]time.Time{}, since: map[string]time.Time{}}
}

// TakeOver has nothing written in the first interval, because the process before may have written a moment ago.
func (p *Pace) TakeOver() *Pace {
	p.takesOver = true
	return p
}

// Rest returns how long after the last write of a key the next one may be made; 0 is now. What is read before then would
// have to be read again.
func (p *Pace) Rest(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.restLocked(key)
}

// restLocked needs mu.
func (p *Pace) restLocked(key string) time.Duration {
	now := p.clock.Now()
	wrote, found := p.wrote[key]
	if !found {
		if !p.takesOver {
			return 0
		}
		if p.began.IsZero() {
			p.began = now
		}
		wrote = p.began
	}
	return max(wrote.Add(p.interval).Sub(now), 0)
}

// Wait returns how long a write has to wait, 0 when it may go now.
func (p *Pace) Wait(key string, transition bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest := p.restLocked(key); rest > 0 {
		return rest
	}
	if transition {
		return 0
	}
	now := p.clock.Now()
	since, waiting := p.since[key]
	if !waiting {
		p.since[key] = now
		return p.interval
	}
	return max(since.Add(p.interval).Sub(now), 0)
}

// Wrote notes a write.
func (p *Pace) Wrote(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrote[key] = p.clock.Now()
	delete(p.since, key)
}

// Settled notes that there is nothing to write.
func (p *Pace) Settled(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, key)
}

// Forget drops a key that is gone.
func (p *Pace) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wrote, key)
	delete(p.since, key)
}
