// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// objectPace is the time between two writes of the status of one hub object.
	objectPace = time.Second
	// summaryPace is the time between two writes of the counts of one MemberCluster.
	summaryPace = 10 * time.Second
)

// Pace keeps the writes of a key apart: the first one after a quiet interval goes at once, and what comes within an
// interval of a write is written together when it ends. It also keeps a pass from acting on a cache that does not show the
// last write yet.
type Pace struct {
	interval time.Duration
	clock    clock.PassiveClock
	// made is when another process may have written last; zero when none has.
	made time.Time

	mu sync.Mutex
	// began is when the first interval of a Pace that takes over began; under mu.
	began time.Time
	// wrote is when each key was written last; under mu.
	wrote map[string]time.Time
}

// NewPace returns a Pace with that interval.
func NewPace(interval time.Duration, clk clock.PassiveClock) *Pace {
	return &Pace{interval: interval, clock: clk, wrote: map[string]time.Time{}}
}

// TakeOver has nothing written in the first interval, because the process before may have written a moment ago. It begins
// now, or, when this process has to wait until the other one ends, with the first pass.
func (p *Pace) TakeOver() *Pace {
	p.made = p.clock.Now()
	return p
}

// Rest returns how long after the last write of a key the next one may be made; 0 is now. What is read before then would
// have to be read again.
func (p *Pace) Rest(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	wrote, found := p.wrote[key]
	if !found {
		if p.made.IsZero() {
			return 0
		}
		if p.began.IsZero() {
			p.began = p.made
			if now.Sub(p.made) > 2*p.interval {
				p.began = now
			}
		}
		wrote = p.began
	}
	return max(wrote.Add(p.interval).Sub(now), 0)
}

// Wrote notes a write.
func (p *Pace) Wrote(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrote[key] = p.clock.Now()
}

// Forget drops a key that is gone.
func (p *Pace) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wrote, key)
}
