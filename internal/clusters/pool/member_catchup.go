// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"slices"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// catchUpPause is the interval of checks whether the watches of a member that is back are open again.
const catchUpPause = 100 * time.Millisecond

// resume publishes that a member that was away answers again. It is Ready when its caches show what happened in the
// meantime.
func (m *member) resume(s *session) {
	m.returned = time.Time{}
	m.due[jobCatchUp] = m.pool.cfg.Clock.Now()
	m.update(func(p *publication) {
		p.verdicts[flotillav1.ConditionReachable] = verdict.Good(flotillav1.ReasonProbeSucceeded, "The API server answers")
		if s.back == clusters.StateAuthFailed && m.pending() == nil && m.rejected == nil {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
		}
		v := readiness(clusters.Snapshot{State: clusters.StateSyncing})
		m.enter(p, clusters.StateSyncing, v.Reason, v.Message)
	})
}

// catchUp makes a member Ready once every watch has been opened again or cannot be: one that is never answered must not
// keep the member away, and switches its kind off.
func (m *member) catchUp() {
	s := m.session
	if len(s.transport.Behind()) > 0 {
		m.due[jobCatchUp] = m.pool.cfg.Clock.Now().Add(catchUpPause)
		return
	}
	if unread := s.transport.Unread(); !slices.Equal(unread, s.unread) {
		s.unread = unread
		m.due[jobSweep] = m.pool.cfg.Clock.Now()
		m.showSwept(s, nil)
	}
	wasAway := s.back
	s.back = ""
	m.setState(clusters.StateReady, flotillav1.ReasonConnected, "The member is engaged")
	s.cluster.recovered()
	m.log.Info("Member is back", "was", string(wasAway))
	m.normal("ClusterRecovered", "Probe", fmt.Sprintf("Cluster %q answers again", m.name))
}
