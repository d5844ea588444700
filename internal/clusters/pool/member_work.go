// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

const (
	// verifyTimeout is the deadline of the calls that verify a new credential, and of those that claim a member.
	verifyTimeout = 15 * time.Second
	// claimRetry is the delay before claiming a member or renewing the claim is retried.
	claimRetry = 10 * time.Second
)

// connect starts an attempt to connect.
func (m *member) connect(ctx context.Context) {
	attemptCtx, cancel := context.WithCancel(ctx)
	a := &attempt{cancel: cancel, input: &attemptInput{
		registration: m.current, credential: m.candidate(), recordedUID: m.snapshot().UID, claim: m.claim, noWatchList: m.noWatchList,
		permit: m.permit, relisted: func() { metrics.CountRelist(m.pool, m.name) },
	}}
	m.attempt = a
	m.retryAt = time.Time{}
	progress := func(state clusters.State, found *preflight.Findings) {
		m.hand(func() {
			if m.attempt == a {
				m.onProgress(state, found)
			}
		})
	}
	kick := func() { signal(m.kicks) }
	var s *session
	// The session of an abandoned attempt has no other owner.
	abandon := func() {
		cancel()
		m.pool.giveUpUIDs(a.input, m.snapshot().UID)
		if s != nil {
			s.close()
		}
	}
	m.spawn(func() func() {
		connected, found, err := m.pool.connect(attemptCtx, a.input, kick, progress)
		s = connected
		return func() {
			if m.attempt != a {
				abandon()
				return
			}
			cancel()
			m.attempt = nil
			if err != nil {
				m.onAttemptFailed(err, found)
				m.pool.giveUpUIDs(a.input, m.snapshot().UID)
				return
			}
			m.onConnected(ctx, s, found)
		}
	}, abandon)
}

// onProgress publishes the progress of an attempt, unless the member is in a worse state that only success disproves.
func (m *member) onProgress(state clusters.State, found *preflight.Findings) {
	switch m.snapshot().State {
	case clusters.StatePending, clusters.StateConnecting, clusters.StateSyncing:
		v := readiness(clusters.Snapshot{State: state})
		m.update(func(p *publication) {
			m.take(p, found)
			m.enter(p, state, v.Reason, v.Message)
		})
	}
	if state == clusters.StateSyncing {
		m.update(func(p *publication) {
			p.verdicts[flotillav1.ConditionCachesSynced] = verdict.Verdict{
				Status: "Unknown", Reason: flotillav1.ReasonSyncing, Message: "The member is being read",
			}
		})
	}
}

// onAttemptFailed evaluates a failed attempt and schedules the next one.
func (m *member) onAttemptFailed(err error, found *preflight.Findings) {
	now := m.pool.cfg.Clock.Now()
	if refused, ok := errors.AsType[*verdict.Refusal](err); ok {
		m.health = health{policy: m.pool.cfg.Health}
		m.retryRefused(refused)
		m.refuse(refused, found)
		return
	}
	if young, ok := errors.AsType[*preflight.ClaimYoungError](err); ok {
		m.log.Info("Waiting until an earlier process has stopped writing to the member", "left", young.Left.String())
		m.retryAt = now.Add(young.Left)
		return
	}
	m.retry(now, false)
	m.log.V(1).Info("Connecting failed", "error", err.Error())
	if errors.Is(err, errSyncTimeout) {
		m.noWatchList = true
		m.update(func(p *publication) {
			m.take(p, found)
			v := verdict.Verdict{Status: "False", Reason: flotillav1.ReasonSyncTimeout, Message: "The caches did not fill in time"}
			p.verdicts[flotillav1.ConditionCachesSynced] = v
			m.enter(p, clusters.StateUnreachable, v.Reason, v.Message)
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
	v, state := verdict.Explain(err), m.health.away
	if ended := m.accepted(); state == clusters.StateAuthFailed && ended.Status != "True" {
		v = ended
	}
	before := m.snapshot()
	m.update(func(p *publication) {
		if state == clusters.StateAuthFailed {
			p.verdicts[flotillav1.ConditionCredentialsAccepted] = v
			p.verdicts[flotillav1.ConditionReachable] = verdict.Good(flotillav1.ReasonProbeSucceeded, "The API server answers")
		} else {
			p.verdicts[flotillav1.ConditionReachable] = v
		}
		m.enter(p, state, v.Reason, v.Message)
	})
	if before.State != state {
		m.log.Info("Member is away", "state", string(state), "reason", v.Reason, "message", v.Message)
		m.warning("Cluster"+string(state), v.Reason, v.Message)
	}
}

// onConnected makes a member Ready, then engages it. In the opposite order, the work that engaging triggers would be
// dropped.
func (m *member) onConnected(ctx context.Context, s *session, found *preflight.Findings) {
	now := m.pool.cfg.Clock.Now()
	m.session, m.proven, m.noWatchList = s, s.credential, false
	if s.credential != m.credential {
		m.use(s.credential)
	}
	m.retries.reset()
	m.health = health{policy: m.pool.cfg.Health, lastGood: now, lastProbe: now}
	m.due = [jobs]time.Time{
		// The claim proves what the caches have read when it is renewed after that.
		jobRenew: now, jobUnpause: now, jobSweep: now.Add(sweepPause), jobInspect: now.Add(m.pool.cfg.InspectInterval),
	}
	m.pool.keepUID(s.uid, m.name)
	if s.claimed = s.claimed && !m.current.Paused; s.claimed {
		m.grant(m.pool.permission(s.heldAt))
	}
	s.transport.Guard()
	m.follow(s)
	m.engage(s.cluster)
	m.update(func(p *publication) {
		m.take(p, found)
		p.verdicts[flotillav1.ConditionCachesSynced] = verdict.Good(flotillav1.ReasonSynced, "Everything watched has been read")
		if !s.claimed && m.current.Paused {
			p.verdicts[flotillav1.ConditionClaimed] = unclaimed(flotillav1.ReasonPaused)
		}
		p.snapshot.Incarnation = s.incarnation
		p.snapshot.Paused = m.current.Paused || !s.claimed
		m.enter(p, clusters.StateReady, flotillav1.ReasonConnected, "The member is engaged")
	})
	m.log.Info("Engaging member", "incarnation", s.incarnation, "version", found.Version)
	m.normal(eventEngaged, "Engage", fmt.Sprintf("Engaged cluster %q, Kubernetes %s", m.name, found.Version))
	m.reportOff(nil, m.snapshot().Off)
	to := s.access
	m.spawn(func() func() {
		err := m.pool.aware.Engage(to.engaged, m.name, to.cluster)
		return func() {
			if err == nil || m.session != s || ctx.Err() != nil {
				return
			}
			m.log.Error(err, "Engaging member")
			m.disconnect()
			m.retry(m.pool.cfg.Clock.Now(), false)
			m.setState(clusters.StatePending, flotillav1.ReasonSyncing, "The member is engaged again after an error")
		}
	})
}

// errAnotherCluster is returned when another cluster answers in place of the member.
var errAnotherCluster = errors.New("another cluster answers")

// probe checks whether the member answers. After an outage, and when a watch was reopened, it also verifies the
// identity of the member, because an address can lead to another cluster at any time.
func (m *member) probe(ctx context.Context) {
	timeout, verify := m.health.timeout(), m.health.asked || (m.health.away != "" && m.health.goods+1 >= recoveries)
	if m.session.transport.IsSuspected() {
		timeout = min(timeout, m.pool.cfg.Health.AwayTimeout)
	}
	// A request during this probe demands another one.
	m.health.asked = false
	m.do(transport.AsProbe(ctx), jobProbe, timeout, func(ctx context.Context, a access) func(*session) {
		uid, started := a.uid, m.pool.cfg.Clock.Now()
		err := a.api.Ready(ctx)
		metrics.ObserveProbe(m.pool, m.name, m.pool.cfg.Clock.Since(started))
		if err == nil && verify {
			uid, err = a.api.Identity(ctx)
		}
		return func(s *session) { m.onProbed(s, uid, err) }
	})
}

// onProbed handles the outcome of a probe.
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
		m.returned = time.Time{}
		m.grant(clusters.Permission{})
		s.transport.OpenBreaker()
		m.showAway(err)
	case wasAway != "" && changed:
		m.onRecovered(s, wasAway)
	case err == nil:
		s.transport.GoodProbe()
	}
	if err != nil {
		s.transport.BadProbe()
	}
}

// onAnotherCluster ends the session, so that the next preflight determines which cluster it is.
func (m *member) onAnotherCluster() {
	m.log.Info("Member is another cluster than before")
	m.reconnect(m.pool.cfg.Clock.Now())
}

// onRecovered closes the breaker. A claimed member is Ready when the claim has been held again: another hub may have taken
// it in the meantime.
func (m *member) onRecovered(s *session, wasAway clusters.State) {
	m.returned, s.back = m.pool.cfg.Clock.Now(), wasAway
	s.transport.CloseBreaker()
	if !s.claimed {
		m.resume(s)
		return
	}
	m.due[jobRenew] = m.returned
}

// renew renews the claim. It verifies the identity of the member first, so that no other cluster is claimed.
func (m *member) renew(ctx context.Context) {
	options := preflight.HoldOptions{Member: m.session.uid, TakeOver: m.current.TakeOver, RenewOnly: m.held()}
	m.do(ctx, jobRenew, verifyTimeout, func(ctx context.Context, a access) func(*session) {
		claim := preflight.Held{Began: m.pool.cfg.Clock.Now()}
		uid, err := a.api.Identity(ctx)
		if err == nil && uid != a.uid {
			err = errAnotherCluster
		}
		if err == nil {
			claim, err = m.claim.Hold(asOwn(ctx), a.api.Client, options)
		}
		return func(s *session) { m.onRenewed(s, claim, err) }
	})
}

// onRenewed handles the outcome of a renewal. A member that another hub has claimed is given up.
func (m *member) onRenewed(s *session, claim preflight.Held, err error) {
	now := m.pool.cfg.Clock.Now()
	var refused *verdict.Refusal
	switch {
	case errors.As(err, &refused):
		m.giveUp(refused, nil)
	case errors.Is(err, errAnotherCluster):
		m.onAnotherCluster()
	case errors.Is(err, preflight.ErrClaimOlder):
		m.onBroken(transport.ErrRestored)
	case !s.claimed || m.health.away != "":
		// The member was paused or lost meanwhile, and is claimed again before it is written.
	case claim.Began.Before(m.returned):
		// The member answers again, but its answer may be from before the outage.
		m.due[jobRenew] = now
	case err != nil:
		m.log.V(1).Info("Renewing the claim failed", "error", err.Error())
		returning := !m.returned.IsZero()
		switch {
		case returning && now.Sub(m.returned) < claimRetry:
			m.due[jobRenew] = now.Add(time.Second)
		case returning, m.permitted(now) == 0:
			m.onLapsed(s, err)
		default:
			m.due[jobRenew] = now.Add(claimRetry)
		}
	default:
		m.due[jobRenew] = now.Add(m.pool.cfg.ClaimRenewal)
		lapsed := m.permitted(now) == 0
		s.heldAt = claim.Began
		m.grant(m.pool.permission(claim.Began))
		s.transport.Renewed(claim.Revision, claim.Began)
		switch {
		case !m.returned.IsZero():
			m.resume(s)
		case lapsed:
			// Requests whose write was refused in the meantime have been dropped.
			s.cluster.recovered()
		}
	}
}

// onLapsed stops writes to a member whose claim could not be renewed in time, or not after an outage. The member is still
// read, and claimed like one that was paused.
func (m *member) onLapsed(s *session, err error) {
	s.claimed = false
	m.grant(clusters.Permission{})
	m.due[jobUnpause] = m.pool.cfg.Clock.Now().Add(claimRetry)
	message := "The claim cannot be renewed, so nothing is written to the member: " + verdict.Explain(err).Message
	m.log.Info("Claim has lapsed", "error", err.Error())
	m.update(func(p *publication) {
		p.verdicts[flotillav1.ConditionClaimed] = verdict.Verdict{Status: "Unknown", Reason: flotillav1.ReasonRenewalFailed, Message: message}
		p.snapshot.Paused = true
	})
	m.warning("ClaimLapsed", "Renew", message)
	if !m.returned.IsZero() {
		m.resume(s)
	}
}

// unpause checks and claims a member that was paused or frozen when it was connected.
func (m *member) unpause(ctx context.Context) {
	registered, checker := m.current, m.pool.checker(nil)
	m.do(ctx, jobUnpause, verifyTimeout, func(ctx context.Context, a access) func(*session) {
		var claim preflight.Held
		found, err := checker.Check(ctx, a.api, &registered, a.uid)
		if err == nil {
			claim, err = takeClaim(ctx, a.api, m.claim, preflight.HoldOptions{Member: a.uid, TakeOver: registered.TakeOver})
		}
		if err == nil {
			// Outdated definitions are upgraded by the next inspection.
			err = checker.Settle(ctx, a.api, found, false)
		}
		return func(s *session) { m.onUnpaused(s, found, claim, err) }
	})
}

// onUnpaused permits writes, or gives up a member that is refused.
func (m *member) onUnpaused(s *session, found *preflight.Findings, claim preflight.Held, err error) {
	now := m.pool.cfg.Clock.Now()
	var refused *verdict.Refusal
	switch {
	case errors.As(err, &refused):
		m.giveUp(refused, found)
	case err != nil:
		m.log.V(1).Info("Claiming an unpaused member failed", "error", err.Error())
		m.due[jobUnpause] = now.Add(claimRetry)
	case m.current.Paused || m.health.away != "":
		// The member was paused again or lost meanwhile.
		m.due[jobUnpause] = now
	default:
		s.claimed, s.heldAt, s.served = true, claim.Began, found.Served
		m.grant(m.pool.permission(claim.Began))
		s.transport.Renewed(claim.Revision, claim.Began)
		m.due[jobRenew], m.due[jobInspect] = now.Add(m.pool.cfg.ClaimRenewal), now
		m.update(func(p *publication) {
			m.take(p, found)
			p.verdicts[flotillav1.ConditionClaimed] = heldClaim
			p.snapshot.Paused = m.current.Paused
		})
		s.cluster.recovered()
	}
}
