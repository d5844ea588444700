// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// update changes the publication. It notifies the subscribers when the snapshot changed, and schedules a publish when
// anything did.
func (m *member) update(change func(*publication)) {
	visible, changed := m.change(change)
	if visible {
		m.pool.notify(m.name)
	}
	if changed {
		m.pool.publisher.enqueue(m.name)
	}
}

// setState moves the member to a state.
func (m *member) setState(state clusters.State, reason, message string) {
	m.update(func(p *publication) { m.enter(p, state, reason, message) })
}

// enter moves a publication to a state. After a restart, Since is restored if the first decision equals what was
// published before.
func (m *member) enter(p *publication, state clusters.State, reason, message string) {
	s := &p.snapshot
	if s.State == state && s.Decided && state == clusters.StateUnreachable {
		// An outage keeps its first reason, because the exact failure may vary with every attempt.
		return
	}
	if s.State != state {
		s.Since = m.pool.cfg.Clock.Now()
	}
	wasDecided := s.Decided
	s.State, s.Reason, s.Message = state, reason, message
	switch state {
	case clusters.StateReady, clusters.StateUnreachable, clusters.StateAuthFailed, clusters.StateInvalid, clusters.StateIncompatible:
		s.Decided = true
	}
	if !wasDecided && s.Decided && !m.recorded.since.IsZero() && m.recorded.ready == readiness(*s).Status {
		s.Since = m.recorded.since
	}
	s.Accepted = s.Accepted || acceptedBy(state, p.verdicts)
}

// acceptedBy reports whether a member becomes accepted by entering state. An unreachable member does: nothing speaks
// against it, and those who select it should see that its status is unknown.
func acceptedBy(state clusters.State, verdicts map[string]verdict.Verdict) bool {
	switch state {
	case clusters.StateReady, clusters.StateUnreachable:
		return true
	case clusters.StateIncompatible:
		return verdicts[flotillav1.ConditionClaimed].Status != "False"
	default:
		return false
	}
}

// event queues an event, which is recorded after the status has been published. Events that differ only in their note
// are folded into the first one, so the action carries the cause where one event reason has several.
func (m *member) event(eventType, reason, action, note string) {
	m.note(hubEvent{eventType: eventType, reason: reason, action: action, note: note})
	m.pool.publisher.enqueue(m.name)
}

// normal and warning queue an event of that type.
func (m *member) normal(reason, action, note string) {
	m.event(corev1.EventTypeNormal, reason, action, note)
}

func (m *member) warning(reason, action, note string) {
	m.event(corev1.EventTypeWarning, reason, action, note)
}

// onRegistration evaluates the wanted registration and the freeze switch.
func (m *member) onRegistration() {
	wanted, lostAt, leaving := m.asked()
	before, wasHeld := m.current, m.held()
	m.current = wanted
	if leaving {
		m.onLeaving()
		return
	}
	m.onFreeze()
	m.onLost(lostAt)
	pauses := wanted.Paused && lostAt.IsZero() && m.session != nil && m.session.claimed
	if pauses {
		// The claim is not renewed during a pause, so it is held again before the next write.
		m.session.claimed, m.due[jobUnpause] = false, m.pool.cfg.Clock.Now()
		m.grant(clusters.Permission{})
	}
	m.update(func(p *publication) {
		p.secret = wanted.Secret
		s := &p.snapshot
		s.Labels, s.Draining, s.Kinds = wanted.Labels, wanted.Drain, wanted.Kinds
		s.Namespaces = m.pool.tenants(wanted.Namespaces)
		// An unclaimed member counts as paused: nothing else is written before this hub holds the claim.
		s.Paused = wanted.Paused || (m.session != nil && !m.session.claimed)
		if pauses {
			p.verdicts[flotillav1.ConditionClaimed] = unclaimed(flotillav1.ReasonPaused)
		}
		if v, ok := p.verdicts[flotillav1.ConditionCredentialsAccepted]; ok && v.Status == "True" {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
		}
	})
	if len(wanted.Contenders) > 0 && !slices.Equal(before.Contenders, wanted.Contenders) {
		m.warning(flotillav1.ReasonContested, "Register", "Cluster name is also asked for by "+text.List(wanted.Contenders, 3))
	}
	if wasHeld && !m.held() && m.session != nil && m.session.claimed && m.health.away == "" {
		m.session.cluster.recovered()
	}
	if before.Digest != wanted.Digest {
		m.onContent(wanted)
	}
}

// onContent handles a credential that has changed.
func (m *member) onContent(wanted registration.Registration) {
	next, refused := wanted.Credential(m.pool.rules)
	now := m.pool.cfg.Clock.Now()
	m.rejected = nil
	m.requested = next
	switch {
	case refused != nil && m.proven != nil:
		m.rejectRotation(refused)
	case refused != nil:
		m.disconnect()
		m.credential = nil
		metrics.ObserveExpiry(m.pool, m.name, time.Time{})
		m.retryAt = time.Time{}
		m.refuse(refused, nil)
	case m.session != nil && next.Fingerprint() == m.session.credential.Fingerprint():
		m.update(func(p *publication) { p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted() })
	case m.session != nil:
		// It is tried beside the session.
	default:
		m.reconnect(now)
		m.health = health{policy: m.pool.cfg.Health, away: m.health.away, awaySince: m.health.awaySince}
		if m.proven == nil {
			m.use(next)
		}
	}
}

// rejectRotation publishes that a new credential is refused while the previous one stays in use.
func (m *member) rejectRotation(refused *verdict.Refusal) {
	v := refused.Verdict()
	v.Message += "; the previous credential stays in use until the manager restarts"
	m.rejected = &v
	m.update(func(p *publication) { p.verdicts[flotillav1.ConditionCredentialsAccepted] = v })
	m.warning("CredentialsRejected", refused.Reason, "Refused the new credential: "+v.Message)
}

// refuse publishes why the member is not engaged.
func (m *member) refuse(refused *verdict.Refusal, found *preflight.Findings) {
	before := m.snapshot()
	m.update(func(p *publication) {
		unread := verdict.Verdict{Status: "Unknown", Reason: flotillav1.ReasonNotYetProbed, Message: "The member is not read"}
		p.verdicts[flotillav1.ConditionCachesSynced] = unread
		if refused.Final {
			unread.Message = "The member is not tried"
			p.verdicts[flotillav1.ConditionReachable] = unread
		}
		m.take(p, found)
		p.verdicts[refused.Condition] = refused.Verdict()
		m.enter(p, refused.State, refused.Reason, refused.Message)
	})
	if before.State != refused.State || before.Reason != refused.Reason {
		m.log.Info("Refusing member", "reason", refused.Reason, "message", refused.Message)
		m.warning("ClusterRefused", refused.Reason, refused.Reason+": "+refused.Message)
	}
}

// take copies the findings of a preflight, if any, into a publication.
func (m *member) take(p *publication, found *preflight.Findings) {
	if found == nil {
		return
	}
	maps.Copy(p.verdicts, found.Verdicts)
	if p.verdicts[flotillav1.ConditionCredentialsAccepted].Status == "True" {
		p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
	}
	if m.rejected != nil {
		p.verdicts[flotillav1.ConditionCredentialsAccepted] = *m.rejected
	}
	if found.UID != "" {
		p.snapshot.Replaced = p.snapshot.Replaced || p.snapshot.UID != "" && p.snapshot.UID != found.UID
		p.snapshot.UID = found.UID
	}
	if found.Version != "" {
		p.version = found.Version
	}
	if found.Served.Known() {
		found.Served.Describe(&p.snapshot)
		p.snapshot.Off = kindsOff(found.Served.Denied, nil)
	}
}
