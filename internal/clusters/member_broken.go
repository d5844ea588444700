// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

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
	now := m.pool.cfg.Clock.Now()
	m.log.Info("Ending the session of a member", "cause", cause.Error())
	m.disconnect()
	m.retries.reset()
	m.retryAt = now
	if errors.Is(cause, errRestored) {
		m.setState(StatePending, flotillav1.ReasonSyncing, "The member was restored and is read again")
		m.warning("MemberRestored", "Watch", fmt.Sprintf("Cluster %q went back to an earlier state and is read again", m.name))
	}
}
