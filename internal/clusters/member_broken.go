// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// limitRetry is after how long a member that exceeded a limit is tried again: to find out costs as much as it may cost.
const limitRetry = 5 * time.Minute

// retryRefused sets when a member that was refused is tried again.
func (m *member) retryRefused(refused *refusal) {
	now := m.pool.cfg.Clock.Now()
	m.retryAt = now.Add(m.retries.next(now, true))
	if refused.reason == flotillav1.ReasonLimitExceeded {
		m.retryAt = now.Add(wait.Jitter(limitRetry, 0.2))
	}
}

// giveUp stops working with a member that turns out to be refused.
func (m *member) giveUp(refused *refusal, found *findings) {
	m.disconnect()
	m.retryRefused(refused)
	m.refuse(refused, found)
}

// follow has the session ended when its transport finds that it cannot go on.
func (m *member) follow(s *session) {
	context.AfterFunc(s.transport.broken, func() {
		cause := s.transport.cause()
		if cause == nil {
			return
		}
		m.hand(func() {
			if m.session == s {
				m.onBroken(cause)
			}
		})
	})
}

// onBroken ends the session. A member that was restored begins a new incarnation: revisions that are used a second time
// make a change look like none, and what was expected of the member may never have happened there.
func (m *member) onBroken(cause error) {
	m.log.Info("Ending the session of a member", "cause", cause.Error())
	if refused, ok := errors.AsType[*refusal](cause); ok {
		m.giveUp(refused, nil)
		return
	}
	m.disconnect()
	m.retries.reset()
	m.retryAt = m.restores.next(m.pool.cfg.Clock.Now())
	if errors.Is(cause, errRestored) {
		m.setState(StatePending, flotillav1.ReasonSyncing, "The member was restored and is read again")
		m.warning("MemberRestored", "Watch", fmt.Sprintf("Cluster %q went back to an earlier state and is read again", m.name))
	}
}

// restoreCalm is how long after a member went back it may do so again without being suspected of doing it all the time.
const restoreCalm = 10 * time.Minute

// restores paces the incarnations of a member that goes back again and again.
type restores struct {
	last    time.Time
	retries retries
}

// next returns when a member that has gone back is read again: at once, unless it did so before.
func (r *restores) next(now time.Time) time.Time {
	calm := r.last.IsZero() || now.Sub(r.last) >= restoreCalm
	r.last = now
	if calm {
		r.retries.reset()
		return now
	}
	return now.Add(r.retries.next(now, false))
}
