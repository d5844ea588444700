// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// sweepPause is how often silent watches are looked for, stalledPause while there are some.
	sweepPause   = 30 * time.Second
	stalledPause = 2 * time.Second
)

// sweep ends watches that have gone silent, and looks whether those that were ended before deliver again.
func (m *member) sweep(context.Context) {
	m.sweeping = true
	s := m.session
	m.spawn(func() func() {
		ended, silent := s.transport.streams.endStalled()
		return func() {
			m.sweeping = false
			if m.session == s {
				m.onSwept(ended, silent)
			}
		}
	})
}

// onSwept shows what is silent.
func (m *member) onSwept(ended int, silent []string) {
	now := m.pool.cfg.Clock.Now()
	m.sweepAt = now.Add(sweepPause)
	countReopened(m.pool, m.name, ended)
	if ended > 0 {
		m.log.Info("Reopening silent watches", "watches", ended, "silent", silent)
	}
	v := good(flotillav1.ReasonSynced, "Everything watched has been read")
	if len(silent) > 0 {
		m.sweepAt = now.Add(stalledPause)
		v = verdict{status: "False", reason: flotillav1.ReasonWatchStalled, message: fmt.Sprintf(
			"Nothing was heard of %s for %d min; the watch was opened again", cutList(silent, 5), int(stallTime.Minutes()))}
	}
	m.update(func(p *publication) { p.verdicts[flotillav1.ConditionCachesSynced] = v })
}
