// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
)

// inspectPause is the delay between noticing a changed definition and reading it. Every replica of an API server needs
// a moment to serve the change, and rejects new fields until then.
const inspectPause = 3 * time.Second

// inspection is the result of an inspection of the definitions.
type inspection struct {
	err error
	// noticed means that a change was detected and is not read yet; read means that the definitions were read.
	noticed bool
	read    bool
	served  preflight.Served
}

// inspect checks whether the member's CustomResourceDefinitions have changed since they were read.
func (m *member) inspect(ctx context.Context) {
	known := m.session.served
	noticed, install := m.session.noticed, m.pool.cfg.InstallCRDs && m.session.claimed && !m.held()
	m.do(ctx, jobInspect, preflight.Timeout, func(ctx context.Context, a access) func(*session) {
		found := inspectDefinitions(ctx, a.api, known, noticed, install)
		return func(s *session) { m.onInspected(s, found) }
	})
}

// inspectDefinitions compares the definitions with the known ones, which were read last. A change is read only if it was noticed before;
// missing or unreadable definitions are read again immediately. With install, outdated definitions are upgraded.
func inspectDefinitions(ctx context.Context, api *preflight.API, known preflight.Served, noticed, install bool) inspection {
	glanced, err := api.Glance(ctx)
	if err != nil {
		return inspection{err: err}
	}
	gone := glanced.Incomplete()
	changed := glanced.Identity() != known.Identity()
	if changed && !noticed && !gone {
		return inspection{noticed: true}
	}
	if !changed && !gone && (!install || !known.Outdated()) {
		return inspection{}
	}
	found := inspection{read: true}
	if found.served, found.err = api.Read(ctx); found.err != nil {
		return found
	}
	if install && found.served.CheckSince(known) == nil && found.served.Outdated() {
		found.served, found.err = api.Install(ctx, found.served)
	}
	return found
}

// onInspected handles the result of an inspection. A member that no longer serves a kind is given up. One that is
// still deleting a definition is not, because its objects wait for the manager to remove their finalizers.
func (m *member) onInspected(s *session, found inspection) {
	now := m.pool.cfg.Clock.Now()
	m.due[jobInspect] = now.Add(m.pool.cfg.InspectInterval)
	s.noticed = found.noticed
	switch {
	case found.err != nil:
		m.log.V(1).Info("Inspecting the definitions failed", "error", found.err.Error())
		return
	case found.noticed:
		m.due[jobInspect] = now.Add(min(inspectPause, m.pool.cfg.InspectInterval))
		return
	case !found.read:
		return
	}
	if refused := found.served.CheckSince(s.served); refused != nil {
		m.giveUp(refused, nil)
		if m.pool.cfg.InstallCRDs {
			m.retryAt = now
		}
		return
	}
	found.served.Denied = s.served.Denied
	s.served = found.served
	m.update(func(p *publication) {
		found.served.Describe(&p.snapshot)
		p.verdicts[flotillav1.ConditionAPIsServed] = found.served.Verdict(m.pool.cfg.InstallCRDs)
	})
}
