// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// limitRetry is the delay before a member that exceeded a limit is tried again. Each attempt may cost as much as the
// limit allows.
const limitRetry = 5 * time.Minute

// retryRefused schedules the next attempt for a refused member.
func (m *member) retryRefused(refused *verdict.Refusal) {
	now := m.pool.cfg.Clock.Now()
	m.retry(now, true)
	if refused.Reason == flotillav1.ReasonLimitExceeded {
		m.retryAt = now.Add(wait.Jitter(limitRetry, 0.2))
	}
}

// giveUp disconnects a refused member, schedules a retry and publishes the refusal.
func (m *member) giveUp(refused *verdict.Refusal, found *preflight.Findings) {
	m.disconnect()
	m.retryRefused(refused)
	m.refuse(refused, found)
}

// follow ends the session when its transport breaks.
func (m *member) follow(s *session) {
	context.AfterFunc(s.transport.Broken(), func() {
		cause := s.transport.Cause()
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

// onBroken ends the session and schedules a new one. A restored member starts a new incarnation: reused resource
// versions hide changes, and writes that controllers rely on may have been undone.
func (m *member) onBroken(cause error) {
	m.log.Info("Ending the session of a member", "cause", cause.Error())
	if refused, ok := errors.AsType[*verdict.Refusal](cause); ok {
		m.giveUp(refused, nil)
		return
	}
	m.reconnect(m.restores.next(m.pool.cfg.Clock.Now()))
	if errors.Is(cause, transport.ErrRestored) {
		m.setState(clusters.StatePending, flotillav1.ReasonSyncing, "The member was restored and is read again")
		m.warning("MemberRestored", "Watch", fmt.Sprintf("Cluster %q went back to an earlier state and is read again", m.name))
	}
}
