// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// inspectPause is between seeing that a definition has changed and reading it: every replica of an API server takes a
// moment to serve by it, and a field that is written too early is refused.
const inspectPause = 3 * time.Second

// inspection is what an inspection of the definitions has found.
type inspection struct {
	err error
	// noticed says that something has changed, and read what it is; nothing is read before it has been noticed.
	noticed bool
	read    bool
	served  served
}

// inspect looks whether the member's CustomResourceDefinitions have changed since they were read.
func (m *member) inspect(ctx context.Context) {
	m.inspecting = true
	s, noticed := m.session, m.noticed
	install := m.pool.cfg.InstallCRDs && s.claimed && !m.held()
	m.spawn(func() func() {
		inspectCtx, cancel := context.WithTimeout(ctx, preflightTimeout)
		defer cancel()
		found := inspectDefinitions(inspectCtx, s, noticed, install)
		return func() {
			m.inspecting = false
			if m.session == s {
				m.onInspected(s, found)
			}
		}
	})
}

// inspectDefinitions does it.
func inspectDefinitions(ctx context.Context, s *session, noticed, install bool) inspection {
	glanced, err := s.api.glance(ctx)
	if err != nil {
		return inspection{err: err}
	}
	gone := len(glanced.names(func(state definitionState) bool { return state.absent || state.unread })) > 0
	changed := glanced.identity() != s.served.identity()
	if changed && !noticed && !gone {
		return inspection{noticed: true}
	}
	if !changed && !gone && (!install || !s.served.outdated()) {
		return inspection{}
	}
	found := inspection{read: true}
	if found.served, found.err = s.api.read(ctx); found.err != nil {
		return found
	}
	if install && checkServed(found.served.resources) == nil && found.served.outdated() {
		found.served, found.err = s.api.install(ctx, found.served)
	}
	return found
}

// onInspected takes in what has changed. A member that serves a kind no more is not worked with; one that is still
// deleting it is, because its objects wait for the manager to let them go.
func (m *member) onInspected(s *session, found inspection) {
	now := m.pool.cfg.Clock.Now()
	m.inspectAt = now.Add(m.pool.cfg.InspectInterval)
	m.noticed = found.noticed
	switch {
	case found.err != nil:
		m.log.V(1).Info("Inspecting the definitions failed", "error", found.err.Error())
		return
	case found.noticed:
		m.inspectAt = now.Add(min(inspectPause, m.pool.cfg.InspectInterval))
		return
	case !found.read:
		return
	}
	if refused := checkServed(found.served.resources); refused != nil {
		m.giveUp(refused, nil)
		if m.pool.cfg.InstallCRDs {
			m.retryAt = now
		}
		return
	}
	found.served.denied = s.served.denied
	s.served = found.served
	m.update(func(p *publication) {
		found.served.tell(&p.snapshot)
		p.verdicts[flotillav1.ConditionAPIsServed] = found.served.verdict(m.pool.cfg.InstallCRDs)
	})
}
