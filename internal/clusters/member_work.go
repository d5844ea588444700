// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// verifyTimeout is for the calls that prove a new credential, and those of a claim.
	verifyTimeout = 15 * time.Second
	// claimRetry is when a claim that could not be renewed is tried again.
	claimRetry = 10 * time.Second
)

// connect starts an attempt.
func (m *member) connect(ctx context.Context) {
	attemptCtx, cancel := context.WithCancel(ctx)
	a := &attempt{cancel: cancel, input: &attemptInput{
		registration: m.current, credential: m.credential, recordedUID: m.snapshot().UID, noWatchList: m.noWatchList,
		permit: m.permit, relisted: func() { countRelist(m.pool, m.name) },
	}}
	m.attempt = a
	m.retryAt = time.Time{}
	progress := func(state State, found *findings) {
		m.hand(func() {
			if m.attempt == a {
				m.onProgress(state, found)
			}
		})
	}
	kick := func() { signal(m.kicks) }
	m.spawn(func() func() {
		s, found, err := m.pool.connect(attemptCtx, a.input, kick, progress)
		return func() {
			cancel()
			if m.attempt != a {
				// The attempt was given up in the meantime; nobody else knows of its session.
				if s != nil {
					s.close()
				}
				return
			}
			m.attempt = nil
			if err != nil {
				m.onAttemptFailed(err, found)
				return
			}
			m.onConnected(ctx, s, found)
		}
	})
}

// onProgress shows how far the attempt is, unless something worse is known that only its success refutes.
func (m *member) onProgress(state State, found *findings) {
	switch m.snapshot().State {
	case StatePending, StateConnecting, StateSyncing:
		v := readiness(Snapshot{State: state})
		m.update(func(p *publication) {
			m.take(p, found)
			m.enter(p, state, v.reason, v.message)
		})
	}
	if state == StateSyncing {
		m.update(func(p *publication) {
			p.verdicts[flotillav1.ConditionCachesSynced] = verdict{
				status: "Unknown", reason: flotillav1.ReasonSyncing, message: "The member is being read",
			}
		})
	}
}

// onAttemptFailed decides what a failed attempt means and when the next one is.
func (m *member) onAttemptFailed(err error, found *findings) {
	now := m.pool.cfg.Clock.Now()
	if refused, ok := errors.AsType[*refusal](err); ok {
		m.health = health{policy: m.pool.cfg.Health}
		m.retryRefused(refused)
		m.refuse(refused, found)
		return
	}
	m.retryAt = now.Add(m.retries.next(now, false))
	m.log.V(1).Info("Connecting failed", "error", err.Error())
	if errors.Is(err, errSyncTimeout) {
		m.noWatchList = true
		m.update(func(p *publication) {
			m.take(p, found)
			v := verdict{status: "False", reason: flotillav1.ReasonSyncTimeout, message: "The caches did not fill in time"}
			p.verdicts[flotillav1.ConditionCachesSynced] = v
			m.enter(p, StateUnreachable, v.reason, v.message)
		})
		return
	}
	m.health.observe(now, err)
	if m.health.away != "" {
		m.showAway(err)
	}
}

// showAway publishes that the member is away.
func (m *member) showAway(err error) {
	v, state := explain(err), m.health.away
	if ended := m.accepted(); state == StateAuthFailed && ended.status != "True" {
		v = ended
	}
	before := m.snapshot()
	m.update(func(p *publication) {
		if state == StateAuthFailed {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = v
			p.verdicts[flotillav1.ConditionReachable] = good(flotillav1.ReasonProbeSucceeded, "The API server answers")
		} else {
			p.verdicts[flotillav1.ConditionReachable] = v
		}
		m.enter(p, state, v.reason, v.message)
	})
	if before.State != state {
		m.log.Info("Member is away", "state", string(state), "reason", v.reason, "message", v.message)
		m.warning("Cluster"+string(state), v.reason, v.message)
	}
}

// onConnected makes a member Ready and engages it. It is Ready first, because the work that engaging brings would be
// dropped otherwise.
func (m *member) onConnected(ctx context.Context, s *session, found *findings) {
	now := m.pool.cfg.Clock.Now()
	m.session, m.proven, m.noWatchList = s, true, false
	m.retries.reset()
	m.health = health{policy: m.pool.cfg.Health, lastGood: now, lastProbe: now}
	m.renewAt, m.checkAt, m.sweepAt = now.Add(m.pool.cfg.ClaimRenewal), now, now.Add(sweepPause)
	m.inspectAt, m.recheckAt = now.Add(m.pool.cfg.InspectInterval), time.Time{}
	m.pool.keepUID(s.uid, m.name)
	s.transport.guard()
	m.follow(s)
	m.mu.Lock()
	m.engaged = s.cluster
	m.mu.Unlock()
	m.update(func(p *publication) {
		m.take(p, found)
		p.verdicts[flotillav1.ConditionCachesSynced] = good(flotillav1.ReasonSynced, "Everything watched has been read")
		p.snapshot.Incarnation = s.incarnation
		p.snapshot.Paused = m.current.paused || !s.claimed
		m.enter(p, StateReady, flotillav1.ReasonConnected, "The member is engaged")
	})
	m.log.Info("Engaging member", "incarnation", s.incarnation, "version", found.version)
	m.normal(eventEngaged, "Engage", fmt.Sprintf("Engaged cluster %q, Kubernetes %s", m.name, found.version))
	m.tellOff(nil, m.snapshot().Off)
	m.spawn(func() func() {
		err := m.pool.aware.Engage(s.engaged, m.name, s.cluster)
		return func() {
			if err == nil || m.session != s || ctx.Err() != nil {
				return
			}
			m.log.Error(err, "Engaging member")
			m.disconnect()
			now := m.pool.cfg.Clock.Now()
			m.retryAt = now.Add(m.retries.next(now, false))
			m.setState(StatePending, flotillav1.ReasonSyncing, "The member is engaged again after an error")
		}
	})
}

// errAnotherCluster says that another cluster answers in the member's place.
var errAnotherCluster = errors.New("another cluster answers")

// probe asks whether the member is there. After an outage, and when a watch was opened again, it also asks whether it is the same
// member: an address can lead to another cluster from one moment to the next.
func (m *member) probe(ctx context.Context) {
	m.probing = true
	s, timeout, verify := m.session, m.health.timeout(), m.health.asked || (m.health.away != "" && m.health.goods+1 >= recoveries)
	if s.transport.isSuspected() {
		timeout = min(timeout, m.pool.cfg.Health.AwayTimeout)
	}
	// Whoever asks while the probe is on its way wants another one.
	m.health.asked = false
	m.spawn(func() func() {
		probeCtx, cancel := context.WithTimeout(asProbe(ctx), timeout)
		defer cancel()
		uid, started := s.uid, m.pool.cfg.Clock.Now()
		err := s.api.ready(probeCtx)
		observeProbe(m.pool, m.name, m.pool.cfg.Clock.Since(started))
		if err == nil && verify {
			uid, err = s.api.identity(probeCtx)
		}
		return func() {
			m.probing = false
			if m.session == s {
				m.onProbed(s, uid, err)
			}
		}
	})
}

// onProbed takes in the outcome of a probe.
func (m *member) onProbed(s *session, uid types.UID, err error) {
	now := m.pool.cfg.Clock.Now()
	if err == nil && uid != s.uid {
		m.onAnotherCluster()
		return
	}
	wasAway := m.health.away
	changed := m.health.observe(now, err)
	if changed && m.rotation != nil {
		m.rotation.at = now
	}
	switch {
	case m.health.away != "" && changed:
		s.transport.openBreaker()
		m.showAway(err)
	case wasAway != "" && changed:
		m.onRecovered(s, wasAway)
	case err == nil:
		s.transport.goodProbe()
	}
	if err != nil {
		s.transport.badProbe()
	}
}

// onAnotherCluster ends the session, so that the preflight tells what the cluster is.
func (m *member) onAnotherCluster() {
	m.log.Info("Member is another cluster than before")
	m.disconnect()
	m.retryAt = m.pool.cfg.Clock.Now()
}

// onRecovered lets work through again: first the connection, then what is known, then those who wait for it.
func (m *member) onRecovered(s *session, wasAway State) {
	s.transport.closeBreaker()
	m.renewAt = m.pool.cfg.Clock.Now()
	m.update(func(p *publication) {
		p.verdicts[flotillav1.ConditionReachable] = good(flotillav1.ReasonProbeSucceeded, "The API server answers")
		if wasAway == StateAuthFailed && m.rotation == nil && m.rejected == nil {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = m.accepted()
		}
		m.enter(p, StateReady, flotillav1.ReasonConnected, "The member is engaged")
	})
	s.cluster.recovered()
	m.log.Info("Member is back", "was", string(wasAway))
	m.normal("ClusterRecovered", "Probe", fmt.Sprintf("Cluster %q answers again", m.name))
}

// renew renews the claim. It asks first whether the member is the one that was claimed, so that no other is.
func (m *member) renew(ctx context.Context) {
	m.renewing = true
	s, takeOver := m.session, m.current.takeOver
	m.spawn(func() func() {
		claimCtx, cancel := context.WithTimeout(ctx, verifyTimeout)
		defer cancel()
		uid, err := s.api.identity(claimCtx)
		if err == nil && uid != s.uid {
			err = errAnotherCluster
		}
		if err == nil {
			err = m.pool.claim().hold(asOwn(claimCtx), s.api.client, takeOver)
		}
		return func() {
			m.renewing = false
			if m.session == s {
				m.onRenewed(err)
			}
		}
	})
}

// onRenewed stops working with a member that is someone else's now.
func (m *member) onRenewed(err error) {
	now := m.pool.cfg.Clock.Now()
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		m.giveUp(refused, nil)
	case errors.Is(err, errAnotherCluster):
		m.onAnotherCluster()
	case err != nil:
		m.log.V(1).Info("Renewing the claim failed", "error", err.Error())
		m.renewAt = now.Add(claimRetry)
	default:
		m.renewAt = now.Add(m.pool.cfg.ClaimRenewal)
	}
}

// unpause checks and claims a member that was paused when it was connected.
func (m *member) unpause(ctx context.Context) {
	m.checking = true
	s := m.session
	in := &attemptInput{registration: m.current, credential: s.credential, recordedUID: s.uid}
	m.spawn(func() func() {
		checkCtx, cancel := context.WithTimeout(ctx, verifyTimeout)
		defer cancel()
		found, err := m.pool.preflight(checkCtx, s.api, in)
		if err == nil {
			err = m.pool.takeClaim(checkCtx, s.api, in)
		}
		if err == nil {
			// Whether older definitions are to be upgraded is looked at next.
			err = m.pool.settle(checkCtx, s.api, found, false)
		}
		return func() {
			m.checking = false
			if m.session == s {
				m.onUnpaused(s, found, err)
			}
		}
	})
}

// onUnpaused lets work through, or stops working with a member that may not be written.
func (m *member) onUnpaused(s *session, found *findings, err error) {
	now := m.pool.cfg.Clock.Now()
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		m.giveUp(refused, found)
	case err != nil:
		m.log.V(1).Info("Claiming an unpaused member failed", "error", err.Error())
		m.checkAt = now.Add(claimRetry)
	default:
		s.claimed, s.served = true, found.served
		m.renewAt, m.inspectAt = now.Add(m.pool.cfg.ClaimRenewal), now
		m.update(func(p *publication) {
			m.take(p, found)
			p.verdicts[flotillav1.ConditionClaimed] = good(flotillav1.ReasonHeld, "This hub holds the claim")
			p.snapshot.Paused = m.current.paused
		})
		s.cluster.recovered()
	}
}
