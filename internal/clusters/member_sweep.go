// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// sweepPause is how often silent watches are looked for, stalledPause while there are some.
	sweepPause   = 30 * time.Second
	stalledPause = 2 * time.Second
	// recheckPause is how often it is asked what a member serves and allows while something of it is off.
	recheckPause = 30 * time.Second
)

// swept is what a sweep has found.
type swept struct {
	// ended watches were silent, or listing without end; silent and unread are resources.
	ended   int
	listing bool
	silent  []string
	unread  []string
	// checked says that the member was asked again what it serves and allows, unless that failed.
	checked bool
	err     error
	served  served
}

// sweep ends watches that have gone silent, looks whether those that were ended before deliver again and whether every
// resource can be watched. It asks what the member serves and allows when that may be why something is off.
func (m *member) sweep(ctx context.Context) {
	m.sweeping = true
	s, registered, now := m.session, m.current, m.pool.cfg.Clock.Now()
	answers, due := m.health.away == "", !now.Before(m.recheckAt)
	known := s.served
	m.spawn(func() func() {
		ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
		defer cancel()
		found := swept{}
		found.ended, found.listing, found.silent = s.transport.streams.endStalled()
		if answers {
			found.unread = s.transport.streams.unread()
			found.checked = due && len(found.unread)+len(known.denied)+len(s.uncached) > 0
		}
		if found.checked {
			found.served, found.err = m.pool.recheck(ctx, s.api, &registered)
		}
		return func() {
			m.sweeping = false
			if m.session == s {
				m.onSwept(s, found)
			}
		}
	})
}

// recheck asks what a member serves and allows. What it does not answer, or refuses, is an error.
func (p *Pool) recheck(ctx context.Context, api *memberAPI, registered *registration) (served, error) {
	now, err := api.read(ctx)
	if err != nil {
		return now, err
	}
	if refused := checkServed(now.resources); refused != nil {
		return now, refused
	}
	now.denied, err = p.checkRights(ctx, api, registered)
	return now, err
}

// onSwept shows what is silent, and what is off.
func (m *member) onSwept(s *session, found swept) {
	now := m.pool.cfg.Clock.Now()
	m.sweepAt = now.Add(sweepPause)
	countReopened(m.pool, m.name, found.ended)
	if found.ended > 0 {
		m.log.Info("Reopening silent watches", "watches", found.ended, "silent", found.silent)
	}
	if found.listing {
		s.transport.noWatchList.Store(true)
	}
	if found.checked {
		m.recheckAt = now.Add(recheckPause)
		if !m.onRechecked(s, found) {
			return
		}
	}
	if m.health.away == "" {
		s.unread = found.unread
	}
	if len(found.silent)+len(s.unread) > 0 {
		m.sweepAt = now.Add(stalledPause)
	}
	m.showSwept(s, found.silent)
}

// onRechecked takes in what the member serves and allows now. It returns whether the session goes on.
func (m *member) onRechecked(s *session, found swept) bool {
	if refused, ok := errors.AsType[*refusal](found.err); ok {
		m.giveUp(refused, nil)
		return false
	}
	if found.err != nil {
		m.log.V(1).Info("Asking again what the member serves and allows failed", "error", found.err.Error())
		return true
	}
	for kind := range s.uncached {
		if _, off := found.served.denied[kind]; !off {
			m.log.Info("Reading a member again, the right to is there now", "kind", kind)
			m.disconnect()
			m.retries.reset()
			m.retryAt = m.pool.cfg.Clock.Now()
			m.setState(StatePending, flotillav1.ReasonSyncing, "The member allows more than before and is read again")
			return false
		}
	}
	s.served.denied = found.served.denied
	return true
}

// showSwept publishes what the sweeps have found. Work for a kind that is on again is queued anew.
func (m *member) showSwept(s *session, silent []string) {
	v := good(flotillav1.ReasonSynced, "Everything watched has been read")
	switch {
	case len(s.unread) > 0:
		v = verdict{status: "False", reason: flotillav1.ReasonWatchStalled, message: fmt.Sprintf(
			"The member answers, but no watch of %s lasts, so what is known of them is from before; look at what its API server and what is before it answer",
			text.List(s.unread, 5))}
	case len(silent) > 0:
		v = verdict{status: "False", reason: flotillav1.ReasonWatchStalled, message: fmt.Sprintf(
			"Nothing was heard of %s for %d min; the watch was opened again", text.List(silent, 5), int(stallTime.Minutes()))}
	}
	before := m.snapshot().Off
	off := kindsOff(s.served.denied, s.unread)
	m.update(func(p *publication) {
		p.verdicts[flotillav1.ConditionCachesSynced] = v
		p.verdicts[flotillav1.ConditionAPIsServed] = s.served.verdict(m.pool.cfg.InstallCRDs)
		p.snapshot.Off = off
	})
	m.tellOff(before, off)
	for kind := range before {
		if off[kind] == "" {
			s.cluster.recovered()
			return
		}
	}
}

// tellOff tells which kinds went off, and which are on again.
func (m *member) tellOff(before, after map[string]string) {
	for _, kind := range ourKinds() {
		switch {
		case !takesPart(m.current.kinds, kind):
		case before[kind] == "" && after[kind] != "":
			m.warning("KindOff", "Watch"+kind, fmt.Sprintf("%s is off in cluster %q: %s", kind, m.name, after[kind]))
		case before[kind] != "" && after[kind] == "":
			m.normal("KindOn", "Watch"+kind, fmt.Sprintf("%s is on again in cluster %q", kind, m.name))
		}
	}
}

// kindsOff says which of our kinds are off in a member, and why; nil when none is.
func kindsOff(denied denials, unread []string) map[string]string {
	var off map[string]string
	put := func(kind, reason string) {
		if off == nil {
			off = map[string]string{}
		}
		off[kind] = reason
	}
	for _, kind := range watchedKinds() {
		if slices.Contains(unread, kind.resource) {
			put(kind.of, flotillav1.ReasonWatchStalled)
		}
	}
	for kind := range denied {
		put(kind, flotillav1.ReasonForbidden)
	}
	return off
}
