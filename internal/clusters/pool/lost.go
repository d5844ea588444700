// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

const (
	// confirmRetry is the delay before the absence of a registration is checked again, after an error or when the
	// registration is back and no watch has shown it yet.
	confirmRetry = 10 * time.Second
	// confirmTimeout is the deadline of the check.
	confirmTimeout = 15 * time.Second
)

// onLost publishes that the registration has vanished, or that it is back.
func (m *member) onLost(lostAt time.Time) {
	was := m.lostAt
	m.lostAt = lostAt
	if lostAt.IsZero() {
		m.update(func(p *publication) { p.lost = verdict.Verdict{} })
		m.recorded.lost = false
		if !was.IsZero() {
			m.log.Info("Registration is back")
		}
		return
	}
	message := fmt.Sprintf("Secret %s, the registration, is gone: nothing is written to the member, which is offboarded unless the Secret returns within %s",
		m.current.Secret, m.pool.cfg.Grace)
	if m.credential == nil {
		message += "; the claim and the finalizers in it remain then, because the credential is gone, too"
	}
	m.update(func(p *publication) { p.lost = verdict.Good(flotillav1.ReasonRegistrationGone, message) })
	if !was.IsZero() {
		return
	}
	if m.credential == nil {
		m.setState(clusters.StateInvalid, flotillav1.ReasonRegistrationGone, message)
	}
	m.log.Info("Registration is gone", "grace", m.pool.cfg.Grace.String())
	if !m.recorded.lost {
		m.warning(flotillav1.ReasonRegistrationGone, "Offboard", message)
	}
}

// confirmDue returns when the grace period ends, or when its end is checked again.
func (m *member) confirmDue() time.Time {
	due := m.lostAt.Add(m.pool.cfg.Grace)
	if again := m.due[jobConfirm]; again.After(due) {
		return again
	}
	return due
}

// confirmLost offboards the member if the hub confirms that the registration is gone. The watches may be behind, for
// example during an outage of the hub, and offboarding cannot be undone.
func (m *member) confirmLost(ctx context.Context) {
	secret := m.current.Secret
	m.do(ctx, jobConfirm, confirmTimeout, func(ctx context.Context, _ access) func(*session) {
		found, err := m.pool.registered(ctx, secret, m.name)
		return func(*session) {
			m.due[jobConfirm] = m.pool.cfg.Clock.Now().Add(confirmRetry)
			switch {
			case err != nil:
				m.log.Error(err, "Confirming that the registration is gone")
			case !found && m.leaveIfLost():
				signal(m.changed)
			}
		}
	})
}
