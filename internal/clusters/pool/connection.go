// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// connection is the session with a member, or the schedule for establishing one.
type connection struct {
	session *session
	attempt *attempt
	retries retries
	// retryAt is when the next attempt starts; zero when none is scheduled.
	retryAt time.Time
	// noWatchList disables streaming lists, for a member whose watches did not complete their initial list.
	noWatchList bool
	restores    restores
	health      health
	// returned is when a member that was away answered again. It is Ready again when the claim has been held since; zero
	// while there is nothing to wait for.
	returned time.Time
}

// attempt is a running attempt to connect.
type attempt struct {
	input  *attemptInput
	cancel context.CancelFunc
}

// hangUp ends the attempt and the session, and reports whether there was a session.
func (c *connection) hangUp() bool {
	if c.attempt != nil {
		c.attempt.cancel()
		c.attempt = nil
	}
	if c.session == nil {
		return false
	}
	c.session.close()
	c.session = nil
	return true
}

// retry schedules the next attempt after a failure.
func (c *connection) retry(now time.Time, refused bool) {
	c.retryAt = now.Add(c.retries.next(now, refused))
}

// retries computes the delays between attempts, such as attempts to connect to a member.
type retries struct {
	backoff wait.Backoff
	// since is when the attempts began to fail; zero when there was no failure since the last reset.
	since time.Time
}

const (
	// For eagerRetries after the first failure, attempts are at most awayRetry apart, so that a returning member is
	// engaged soon. Likewise, recheckEager applies to refused members at first, because GitOps may be about to deliver
	// what they lack.
	eagerRetries = 2 * time.Minute
	awayRetry    = 10 * time.Second
	recheckEager = 5 * time.Second
	recheckLater = 30 * time.Second
)

// next returns the delay after a failure.
func (r *retries) next(now time.Time, refused bool) time.Duration {
	if r.since.IsZero() {
		r.since = now
		r.backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 32, Cap: 5 * time.Minute}
	}
	eager := now.Sub(r.since) < eagerRetries
	switch {
	case refused && eager:
		return wait.Jitter(recheckEager, 0.2)
	case refused:
		return wait.Jitter(recheckLater, 0.2)
	case eager && r.backoff.Duration >= awayRetry:
		return wait.Jitter(awayRetry, 0.2)
	default:
		return r.backoff.Step()
	}
}

// reset makes the next failure the first one.
func (r *retries) reset() { *r = retries{} }

// restoreCalm is the time after a restore before another one is handled without delay again.
const restoreCalm = 10 * time.Minute

// restores delays new incarnations of a member that is restored repeatedly.
type restores struct {
	last    time.Time
	retries retries
}

// next returns when a restored member is read again: immediately, unless it was restored less than restoreCalm ago.
func (r *restores) next(now time.Time) time.Time {
	calm := r.last.IsZero() || now.Sub(r.last) >= restoreCalm
	r.last = now
	if calm {
		r.retries.reset()
		return now
	}
	return now.Add(r.retries.next(now, false))
}
