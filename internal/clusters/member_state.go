// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// update changes what is published, and tells subscribers and publisher when that made a difference.
func (m *member) update(change func(*publication)) {
	m.mu.Lock()
	next := m.published
	next.verdicts = maps.Clone(next.verdicts)
	change(&next)
	visible := !reflect.DeepEqual(next.snapshot, m.published.snapshot)
	changed := visible || !reflect.DeepEqual(next, m.published)
	m.published = next
	m.mu.Unlock()
	if visible {
		m.pool.notify(m.name)
	}
	if changed {
		m.pool.publisher.enqueue(m.name)
	}
}

// setState moves the member to a state.
func (m *member) setState(state State, reason, message string) {
	m.update(func(p *publication) { m.enter(p, state, reason, message) })
}

// enter moves a publication to a state. Since survives a restart when the first decision is what was published before.
func (m *member) enter(p *publication, state State, reason, message string) {
	s := &p.snapshot
	if s.State == state && s.Decided && state == StateUnreachable {
		// An outage keeps its first reason: how exactly the member fails to answer may change with every try.
		return
	}
	if s.State != state {
		s.Since = m.pool.cfg.Clock.Now()
	}
	wasDecided := s.Decided
	s.State, s.Reason, s.Message = state, reason, message
	switch state {
	case StateReady, StateUnreachable, StateAuthFailed, StateInvalid, StateIncompatible:
		s.Decided = true
	}
	if !wasDecided && s.Decided && !m.recorded.since.IsZero() && m.recorded.ready == readiness(*s).status {
		s.Since = m.recorded.since
	}
	s.Accepted = s.Accepted || acceptedBy(state, p.verdicts)
}

// acceptedBy says whether a member that was never accepted is so now. One that was never reached is: nothing speaks
// against it, and who selects it is to see that it is unknown.
func acceptedBy(state State, verdicts map[string]verdict) bool {
	switch state {
	case StateReady, StateUnreachable:
		return true
	case StateIncompatible:
		return verdicts[flotillav1.ConditionClaimed].status != "False"
	default:
		return false
	}
}

// event notes something to be told once the status says it too. Events that differ in the note alone fold into the first
// one, so that the action is the reason where one reason of events has several causes.
func (m *member) event(eventType, reason, action, note string) {
	m.mu.Lock()
	m.events = append(m.events, hubEvent{eventType: eventType, reason: reason, action: action, note: note})
	m.mu.Unlock()
	m.pool.publisher.enqueue(m.name)
}

// normal and warning are the two types of events.
func (m *member) normal(reason, action, note string) {
	m.event(corev1.EventTypeNormal, reason, action, note)
}

func (m *member) warning(reason, action, note string) {
	m.event(corev1.EventTypeWarning, reason, action, note)
}

// onRegistration looks at what the registration says now.
func (m *member) onRegistration(ctx context.Context) {
	m.mu.Lock()
	wanted, leaving := m.wanted, m.leaving
	m.mu.Unlock()
	if leaving {
		m.offboard(ctx)
		return
	}
	before, wasHeld := m.current, m.held()
	m.current = wanted
	m.onFreeze()
	m.update(func(p *publication) {
		p.secret = wanted.secret
		s := &p.snapshot
		s.Labels, s.Draining, s.Kinds = wanted.labels, wanted.drain, wanted.kinds
		s.Namespaces = m.pool.tenants(wanted.namespaces)
		// A member that was paused from the start is not written before its claim is held.
		s.Paused = wanted.paused || (m.session != nil && !m.session.claimed)
		if v, ok := p.verdicts[flotillav1.ConditionCredentialsAccepted]; ok && v.status == "True" {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
		}
	})
	if len(wanted.contenders) > 0 && !slices.Equal(before.contenders, wanted.contenders) {
		m.warning(flotillav1.ReasonContested, "Register", "Cluster name is also asked for by "+text.List(wanted.contenders, 3))
	}
	if wasHeld && !m.held() && m.session != nil && m.session.claimed && m.health.away == "" {
		m.session.cluster.recovered()
	}
	if before.digest != wanted.digest {
		m.onContent(wanted)
	}
}

// onContent looks at a credential that has changed.
func (m *member) onContent(wanted registration) {
	refused := wanted.refused
	var next *credential
	if refused == nil {
		next, refused = wanted.parse(wanted.kubeconfig.reveal(), m.pool.rules)
	}
	now := m.pool.cfg.Clock.Now()
	m.rejected = nil
	switch {
	case refused != nil && m.proven:
		m.rotation = nil
		m.rejectRotation(refused)
	case refused != nil:
		m.disconnect()
		m.credential = nil
		observeExpiry(m.pool, m.name, time.Time{})
		m.retryAt = time.Time{}
		m.refuse(refused, nil)
	case m.session != nil && next.fingerprint == m.session.credential.fingerprint:
		m.rotation = nil
		m.update(func(p *publication) { p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted() })
	case m.session != nil:
		m.rotation = &rotation{next: next, at: now}
	default:
		m.disconnect()
		m.proven = false
		m.retries.reset()
		m.health = health{policy: m.pool.cfg.Health, away: m.health.away, awaySince: m.health.awaySince}
		m.retryAt = now
		m.use(next)
	}
}

// rejectRotation says that a new credential is refused while the old one goes on working.
func (m *member) rejectRotation(refused *refusal) {
	v := refused.verdict()
	v.message += "; the previous credential stays in use until the manager restarts"
	m.rejected = &v
	m.update(func(p *publication) { p.verdicts[flotillav1.ConditionCredentialsAccepted] = v })
	m.warning("CredentialsRejected", refused.reason, "Refused the new credential: "+v.message)
}

// refuse shows why the member is not engaged.
func (m *member) refuse(refused *refusal, found *findings) {
	before := m.snapshot()
	m.update(func(p *publication) {
		unread := verdict{status: "Unknown", reason: flotillav1.ReasonNotYetProbed, message: "The member is not read"}
		p.verdicts[flotillav1.ConditionCachesSynced] = unread
		if refused.final {
			unread.message = "The member is not tried"
			p.verdicts[flotillav1.ConditionReachable] = unread
		}
		m.take(p, found)
		p.verdicts[refused.condition] = refused.verdict()
		m.enter(p, refused.state, refused.reason, refused.message)
	})
	if before.State != refused.state || before.Reason != refused.reason {
		m.log.Info("Refusing member", "reason", refused.reason, "message", refused.message)
		m.warning("ClusterRefused", refused.reason, refused.reason+": "+refused.message)
	}
}

// take takes over what a preflight has found.
func (m *member) take(p *publication, found *findings) {
	if found == nil {
		return
	}
	maps.Copy(p.verdicts, found.verdicts)
	if p.verdicts[flotillav1.ConditionCredentialsAccepted].status == "True" {
		p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
	}
	if m.rejected != nil {
		p.verdicts[flotillav1.ConditionCredentialsAccepted] = *m.rejected
	}
	if found.uid != "" {
		p.snapshot.Replaced = p.snapshot.Replaced || p.snapshot.UID != "" && p.snapshot.UID != found.uid
		p.snapshot.UID = found.uid
	}
	if found.version != "" {
		p.version = found.version
	}
	if found.served.states != nil {
		found.served.tell(&p.snapshot)
		p.snapshot.Off = kindsOff(found.served.denied, nil)
	}
}
