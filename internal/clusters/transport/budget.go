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
	// freeCost is what an event or a page of a list may need without a share of the budget, and freeAnswerCost what another
	// answer may need. Nearly all need less.
	freeCost       = 256 << 10
	freeAnswerCost = 1 << 20
	// shareCost is what an event, a page of a list or another answer may need at most once it is decoded.
	shareCost = 32 << 20
	// decodingBudget is what all with a share may need together.
	decodingBudget = 256 << 20
	// shareWait is how long an answer may wait for its share, and shareTime how long it may have it until it is received.
	// It is received in much less; a member that sends it slowly does not keep the share from others, and gets none for
	// shareRest. On a machine that is busy everything is slow, so an answer of which shareBytes came meanwhile has its
	// share for another shareTime, up to shareTerms of them: less than others wait.
	shareWait  = time.Minute
	shareTime  = 10 * time.Second
	shareRest  = 5 * time.Minute
	shareBytes = 128 << 10
	shareTerms = 4
	// decodeTime is how long an answer that is received keeps its share: it is decoded in much less.
	decodeTime = 3 * time.Second
)

// decodingShares is the budget of all members.
var decodingShares = semaphore.NewWeighted(decodingBudget)

// errNoShare fails an answer that gets no share of the memory for decoding, or is sent so slowly that it loses it.
var errNoShare = errors.New("there is no memory to decode a large answer of the member now")

// share is the part of the budget that an answer has while it is received and decoded. A member has at most one, so that
// it cannot use up the budget.
type share struct {
	turn chan struct{} // Of the member.
	end  func()        // Ends the answer.
	time time.Duration

	mu     sync.Mutex  // Guards the fields below.
	timer  *time.Timer // Nil without a share.
	closed bool
	// came is how many bytes came since the share was acquired or its last term began, and terms how many terms it had.
	came, terms int
}

// acquire waits for a share, and returns false if there was none in time.
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

// count records that n bytes of the answer came.
func (s *share) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came += n
}

// extend begins another term of an answer that goes on, and returns false if it does not.
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

// expire ends an answer that is sent slowly.
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

// give returns the share, if any, and calls pass to pass the turn. pass may use what mu guards.
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

// close returns the share for good.
func (s *share) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.release()
}

// received returns the share, if any, when there was time to decode the answer.
func (s *share) received() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil && s.timer.Stop() {
		s.timer = time.AfterFunc(decodeTime, s.release)
	}
}
