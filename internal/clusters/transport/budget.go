// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// freeCost is the memory that a watch event or a page of a list may need without a share of the budget. freeAnswerCost
	// applies to all other responses. Nearly all need less.
	freeCost       = 256 << 10
	freeAnswerCost = 1 << 20
	// shareCost is the maximum memory of a decoded event, page or other response.
	shareCost = 32 << 20
	// decodingBudget is the maximum memory of all responses that have a share.
	decodingBudget = 256 << 20
	// shareWait is how long a response may wait for a share, and shareTime how long it may keep it while it is received. A
	// member that sends more slowly loses the share and gets no other one for shareRest. A busy machine also receives slowly,
	// so the time is extended, at most to shareTerms times, while at least shareBytes arrive in each. That is less than
	// shareWait.
	shareWait  = time.Minute
	shareTime  = 10 * time.Second
	shareRest  = 5 * time.Minute
	shareBytes = 128 << 10
	shareTerms = 4
	// decodeTime is how long a complete response keeps its share. Decoding takes much less.
	decodeTime = 3 * time.Second
)

// decodingShares is the budget of all members.
var decodingShares = semaphore.NewWeighted(decodingBudget)

// errNoShare is returned for a response that gets no share of the budget, or that loses it because it is sent too slowly.
var errNoShare = errors.New("there is no memory to decode a large answer of the member now")

// share is the part of the budget that a response holds while it is received and decoded. A member has at most one, so that
// it cannot exhaust the budget.
type share struct {
	turn chan struct{} // Held with the share. All responses of a member use the same.
	end  func()        // Aborts the response.
	time time.Duration

	mu     sync.Mutex  // Guards the fields below.
	timer  *time.Timer // Nil without a share.
	closed bool
	// came is the number of bytes received in the current term, and terms the number of terms that have begun.
	came, terms int
}

// acquire waits for a share. It returns false if none is available in time.
func (s *share) acquire(ctx context.Context) bool {
	s.mu.Lock()
	has, closed := s.timer != nil, s.closed
	s.mu.Unlock()
	if has || closed {
		return has
	}
	ctx, cancel := context.WithTimeout(ctx, shareWait)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if decodingShares.Acquire(ctx, shareCost) != nil {
		<-s.turn
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		decodingShares.Release(shareCost)
		<-s.turn
		return false
	}
	s.came, s.terms = 0, 1
	s.timer = time.AfterFunc(s.time, s.expire)
	return true
}

// count records that n bytes were received.
func (s *share) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came += n
}

// extend starts another term if enough of the response was received in the current one.
func (s *share) extend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil || s.came < shareBytes || s.terms == shareTerms {
		return false
	}
	s.came = 0
	s.terms++
	s.timer.Reset(s.time)
	return true
}

// expire aborts the response unless its time is extended.
func (s *share) expire() {
	if s.extend() {
		return
	}
	s.give(func() {
		s.closed = true
		time.AfterFunc(shareRest, func() { <-s.turn })
	})
	s.end()
}

// release returns the share, if any.
func (s *share) release() { s.give(func() { <-s.turn }) }

// give returns the share, if any, and calls pass with mu held to pass on the turn.
func (s *share) give(pass func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil {
		return
	}
	s.timer.Stop()
	s.timer = nil
	decodingShares.Release(shareCost)
	pass()
}

// close returns the share. No other one can be acquired afterwards.
func (s *share) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.release()
}

// received returns the share, if any, after decodeTime.
func (s *share) received() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil && s.timer.Stop() {
		s.timer = time.AfterFunc(decodeTime, s.release)
	}
}
