// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// objectPace is the interval between writes of the status of one hub object.
	objectPace = time.Second
	// summaryPace is the interval between writes of the counts of one MemberCluster.
	summaryPace = 3 * time.Second
	// shareOfInterval is the number of clusters of an object that one interval pays for. Each version of an object lists all
	// its clusters, so one in more clusters is written less often, and a change of one of them costs about the same.
	shareOfInterval = 2000
)

// Pace rate-limits writes by key: the first write after a quiet interval is immediate, and changes within an interval
// after a write are coalesced into one write at its end. It also prevents a pass from using a cache that does not
// contain the last write yet.
type Pace struct {
	interval time.Duration
	clock    clock.PassiveClock
	// made is when another process may have written last; zero if none has.
	made time.Time

	mu sync.Mutex
	// began is when the first interval of a Pace that takes over began; guarded by mu.
	began time.Time
	// next is when each key may be written again; guarded by mu.
	next map[string]time.Time
}

// NewPace returns a Pace with that interval.
func NewPace(interval time.Duration, clk clock.PassiveClock) *Pace {
	return &Pace{interval: interval, clock: clk, next: map[string]time.Time{}}
}

// TakeOver suppresses writes during the first interval, because the previous leader may just have written. The interval
// begins now or, if this process first has to wait for the other one to end, with the first pass.
func (p *Pace) TakeOver() *Pace {
	p.made = p.clock.Now()
	return p
}

// Rest returns the time until the next write of a key is allowed; 0 means now. A pass should not read anything before
// that, because it would have to be read again.
func (p *Pace) Rest(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	next, found := p.next[key]
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
		next = p.began.Add(p.interval)
	}
	return max(next.Sub(now), 0)
}

// Wrote records a write of an object that lists so many clusters.
func (p *Pace) Wrote(key string, clusters int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[key] = p.clock.Now().Add(p.interval * time.Duration(max(clusters, shareOfInterval)) / shareOfInterval)
}

// Forget deletes a key.
func (p *Pace) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.next, key)
}
