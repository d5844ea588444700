// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// panicPause is how long a member pauses after a panic.
const panicPause = 5 * time.Second

// member is an actor: a single goroutine decides the state of the member. It never does I/O itself. Jobs do, on their
// own goroutines, and return a function that handles the outcome.
type member struct {
	pool *Pool
	name multicluster.ClusterName
	log  logr.Logger
	// claim is this hub's claim on the member.
	claim *preflight.Claim

	mailbox
	board

	// The fields below belong to the member's goroutine.

	credentials
	connection
	agenda

	// current is the last evaluated registration; recorded is what an earlier process published.
	current  registration.Registration
	recorded recordedState
	// lostAt is when the registration vanished; zero while there is one.
	lostAt time.Time
	// thawed is false while the member is reported as frozen.
	thawed bool
	// leaves is true once the registration is gone for good; over is true once the member has been offboarded.
	leaves, over bool
	// rest is how long to pause before work continues after a panic.
	rest time.Duration
}

// newMember returns a member that does nothing until it is run. recorded is what an earlier process published; it may
// be nil.
func newMember(p *Pool, wanted registration.Registration, recorded *flotillav1.MemberCluster) *member {
	m := &member{
		pool: p, name: wanted.ClusterName, log: p.log.WithValues("cluster", string(wanted.ClusterName)),
		claim: p.newClaim(), mailbox: newMailbox(), recorded: readRecorded(recorded), connection: connection{health: health{policy: p.cfg.Health}},
	}
	m.wanted = wanted
	m.published = publication{
		secret:   wanted.Secret,
		verdicts: map[string]verdict.Verdict{},
		snapshot: clusters.Snapshot{
			Name: m.name, State: clusters.StatePending, Since: p.cfg.Clock.Now(), UID: m.recorded.uid, Accepted: m.recorded.accepted,
			Labels: wanted.Labels, Paused: wanted.Paused, Draining: wanted.Drain, Kinds: wanted.Kinds,
			Frozen: p.frozen.Load().covers(wanted.Labels), Namespaces: p.tenants(wanted.Namespaces),
		},
	}
	m.thawed = !m.recorded.frozen
	m.changed <- struct{}{}
	return m
}

// want sets the wanted registration. It does not block.
func (m *member) want(wanted registration.Registration) {
	if m.board.want(wanted) {
		signal(m.changed)
	}
}

// lose records that the registration has vanished. The member is not written from now on, and is offboarded after the
// grace period unless the registration returns.
func (m *member) lose() {
	if m.board.lose(m.pool.cfg.Clock.Now()) {
		signal(m.changed)
	}
}

// leave starts the offboarding of the member. It cannot be undone: a registration that returns creates a new member.
func (m *member) leave() {
	m.board.leave()
	signal(m.changed)
}

// run runs the actor. A panic costs this member its connection and a pause; other members are not affected.
func (m *member) run(ctx context.Context) {
	defer close(m.done)
	for !m.live(ctx) {
	}
}

// live handles one event after the other and returns true when the member is done. It recovers from a panic and
// returns false.
func (m *member) live(ctx context.Context) (over bool) {
	defer func() {
		if r := recover(); r != nil {
			m.log.Error(fmt.Errorf("panic: %v", r), "Member panicked", "stack", string(debug.Stack()))
			m.reset()
		}
	}()
	timer := m.pool.cfg.Clock.NewTimer(m.rest)
	defer timer.Stop()
	if m.rest > 0 {
		select {
		case <-ctx.Done():
			return true
		case <-timer.C():
			m.rest = 0
		}
	}
	for {
		m.arm(timer)
		select {
		case <-ctx.Done():
			m.disconnect()
			return true
		case <-m.changed:
			m.onRegistration()
		case <-m.kicks:
			m.health.asked = true
		case outcome := <-m.outcomes:
			outcome()
		case <-timer.C():
		}
		m.act(ctx)
		if m.over {
			return true
		}
	}
}

// reset discards all state that a panic may have left inconsistent.
func (m *member) reset() {
	m.disconnect()
	m.agenda = agenda{}
	m.health = health{policy: m.pool.cfg.Health}
	m.current = registration.Registration{}
	m.rest = panicPause
	m.setState(clusters.StateUnreachable, flotillav1.ReasonProbeFailed, "The manager failed while it worked with the member; see its log")
	signal(m.changed)
}

// disconnect ends the attempt and the session, if any.
func (m *member) disconnect() {
	m.returned = time.Time{}
	m.grant(clusters.Permission{})
	if m.hangUp() {
		m.engage(nil)
	}
}

// reconnect ends the session and schedules a new connection, without the backoff of earlier failures.
func (m *member) reconnect(at time.Time) {
	m.disconnect()
	m.retries.reset()
	m.retryAt = at
}

// do runs a job with a deadline on its own goroutine. The function that the job returns runs on the member's
// goroutine, unless the session of the job has ended by then. A job gets no access if there is no session.
func (m *member) do(ctx context.Context, which job, timeout time.Duration, work func(context.Context, access) func(*session)) {
	s, to := m.session, access{}
	if s != nil {
		to = s.access
	}
	m.running[which] = true
	m.spawn(func() func() {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		outcome := work(ctx, to)
		return func() {
			m.running[which] = false
			if m.session == s {
				outcome(s)
			}
		}
	})
}

// situation returns what decides what the member does next, as of now.
func (m *member) situation(now time.Time) *situation {
	s := &situation{
		now: now, over: m.over, leaves: m.leaves, held: m.held(), running: m.running, due: m.due,
		expires: m.expiryDue(), retryAt: m.retryAt, attempting: m.attempt != nil, away: m.health.away != "",
	}
	if !m.lostAt.IsZero() {
		s.due[jobConfirm] = m.confirmDue()
		s.lost = true
	}
	if m.session == nil {
		return s
	}
	s.connected, s.claimed, s.behind, s.returning = true, m.session.claimed, m.session.back != "", !m.returned.IsZero()
	s.permitted = m.permitted(now)
	s.due[jobProbe] = m.health.due(m.session.transport.LastTraffic())
	if r := m.rotating(); r != nil {
		s.rotates, s.due[jobRotate], s.running[jobRotate] = true, r.at, r.running
	}
	return s
}

// start starts a job.
func (m *member) start(ctx context.Context, which job) {
	switch which {
	case jobConnect:
		m.connect(ctx)
	case jobProbe:
		m.probe(ctx)
	case jobRenew:
		m.renew(ctx)
	case jobUnpause:
		m.unpause(ctx)
	case jobCatchUp:
		m.catchUp()
	case jobSweep:
		m.sweep(ctx)
	case jobInspect:
		m.inspect(ctx)
	case jobRotate:
		m.rotate(ctx)
	case jobReportExpiry:
		m.reportExpiry()
	case jobConfirm:
		m.confirmLost(ctx)
	case jobOffboard:
		m.offboard(ctx)
	}
}

// arm sets the timer to the next due task.
func (m *member) arm(timer clock.Timer) {
	now := m.pool.cfg.Clock.Now()
	next := now.Add(time.Hour)
	for _, t := range m.situation(now).tasks() {
		if t.at.Before(next) {
			next = t.at
		}
	}
	if !timer.Stop() {
		select {
		case <-timer.C():
		default:
		}
	}
	timer.Reset(max(next.Sub(now), 0))
}

// act starts the due tasks.
func (m *member) act(ctx context.Context) {
	now := m.pool.cfg.Clock.Now()
	for _, t := range m.situation(now).tasks() {
		if !now.Before(t.at) {
			m.start(ctx, t.job)
		}
	}
}
