// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// sweepPause is the interval of sweeps; stalledPause is the interval while resources are silent or cannot be
	// watched.
	sweepPause   = 30 * time.Second
	stalledPause = 2 * time.Second
	// recheckPause is the minimum interval between checks of what a member serves and allows, made while a kind is
	// off.
	recheckPause = 30 * time.Second
)

// swept is the result of a sweep.
type swept struct {
	// ended is the number of watches closed for being silent; listing means that one was still at its initial list.
	// silent and unread are resources.
	ended   int
	listing bool
	silent  []string
	unread  []string
	// checked means that what the member serves and allows was read again, unless err is set.
	checked bool
	err     error
	served  preflight.Served
}

// sweep closes silent watches, checks whether reopened ones deliver, and whether every resource can be watched. It
// checks what the member serves and allows when that may be why a kind is off.
func (m *member) sweep(ctx context.Context) {
	registered, known := m.current, m.session.served
	answers, due := m.health.away == "", !m.pool.cfg.Clock.Now().Before(m.session.recheckAt)
	m.do(ctx, jobSweep, preflight.Timeout, func(ctx context.Context, a access) func(*session) {
		found := swept{}
		found.ended, found.listing, found.silent = a.transport.EndStalled()
		if answers {
			found.unread = a.transport.Unread()
			found.checked = due && len(found.unread)+len(known.Denied)+len(a.uncached) > 0
		}
		if found.checked {
			found.served, found.err = preflight.Recheck(ctx, a.api, &registered)
		}
		return func(s *session) { m.onSwept(s, found) }
	})
}

// onSwept handles the result of a sweep.
func (m *member) onSwept(s *session, found swept) {
	now := m.pool.cfg.Clock.Now()
	m.due[jobSweep] = now.Add(sweepPause)
	metrics.CountReopened(m.pool, m.name, found.ended)
	if found.ended > 0 {
		m.log.Info("Reopening silent watches", "watches", found.ended, "silent", found.silent)
	}
	if found.listing {
		s.transport.UseLists()
	}
	if found.checked {
		s.recheckAt = now.Add(recheckPause)
		if !m.onRechecked(s, found) {
			return
		}
	}
	if m.health.away == "" {
		s.unread = found.unread
	}
	if len(found.silent)+len(s.unread) > 0 {
		m.due[jobSweep] = now.Add(stalledPause)
	}
	m.showSwept(s, found.silent)
}

// onRechecked handles what the member serves and allows now. It reports whether the session continues.
func (m *member) onRechecked(s *session, found swept) bool {
	if refused, ok := errors.AsType[*verdict.Refusal](found.err); ok {
		m.giveUp(refused, nil)
		return false
	}
	if found.err != nil {
		m.log.V(1).Info("Asking again what the member serves and allows failed", "error", found.err.Error())
		return true
	}
	for kind := range s.uncached {
		if _, off := found.served.Denied[kind]; !off {
			m.log.Info("Reading a member again, the right to is there now", "kind", kind)
			m.reconnect(m.pool.cfg.Clock.Now())
			m.setState(clusters.StatePending, flotillav1.ReasonSyncing, "The member allows more than before and is read again")
			return false
		}
	}
	s.served.Denied = found.served.Denied
	return true
}

// showSwept publishes the result of a sweep. When a kind is on again, its work is queued again.
func (m *member) showSwept(s *session, silent []string) {
	v := verdict.Good(flotillav1.ReasonSynced, "Everything watched has been read")
	switch {
	case len(s.unread) > 0:
		v = verdict.Verdict{Status: "False", Reason: flotillav1.ReasonWatchStalled, Message: fmt.Sprintf(
			"The member answers, but no watch of %s lasts, so what is known of them is from before; look at what its API server and what is before it answer",
			text.List(s.unread, 5))}
	case len(silent) > 0:
		v = verdict.Verdict{Status: "False", Reason: flotillav1.ReasonWatchStalled, Message: fmt.Sprintf(
			"Nothing was heard of %s for %d min; the watch was opened again", text.List(silent, 5), int(transport.StallTime.Minutes()))}
	}
	before := m.snapshot().Off
	off := kindsOff(s.served.Denied, s.unread)
	m.update(func(p *publication) {
		p.verdicts[flotillav1.ConditionCachesSynced] = v
		p.verdicts[flotillav1.ConditionAPIsServed] = s.served.Verdict(m.pool.cfg.InstallCRDs)
		p.snapshot.Off = off
	})
	m.reportOff(before, off)
	for kind := range before {
		if off[kind] == "" {
			s.cluster.recovered()
			return
		}
	}
}

// reportOff records events for kinds that went off and for kinds that are on again.
func (m *member) reportOff(before, after map[string]string) {
	for _, kind := range clusters.OurKinds() {
		switch {
		case !clusters.TakesPart(m.current.Kinds, kind):
		case before[kind] == "" && after[kind] != "":
			m.warning("KindOff", "Watch"+kind, fmt.Sprintf("%s is off in cluster %q: %s", kind, m.name, after[kind]))
		case before[kind] != "" && after[kind] == "":
			m.normal("KindOn", "Watch"+kind, fmt.Sprintf("%s is on again in cluster %q", kind, m.name))
		}
	}
}

// kindsOff returns the kinds that are off in a member, with the reasons; nil when there are none.
func kindsOff(denied kinds.Denials, unread []string) map[string]string {
	var off map[string]string
	put := func(kind, reason string) {
		if off == nil {
			off = map[string]string{}
		}
		off[kind] = reason
	}
	for _, kind := range kinds.Watched() {
		if slices.Contains(unread, kind.Resource) {
			put(kind.Of, flotillav1.ReasonWatchStalled)
		}
	}
	for kind := range denied {
		put(kind, flotillav1.ReasonForbidden)
	}
	return off
}

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
