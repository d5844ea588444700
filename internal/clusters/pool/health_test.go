// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

func TestHealth(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	failure, refusedHere := verdict.StatusError(500), verdict.StatusError(401)
	type probe struct {
		after time.Duration
		err   error
	}
	for name, tc := range map[string]struct {
		probes []probe
		want   clusters.State
	}{
		"three quick failures are not enough":       {probes: []probe{{0, failure}, {time.Second, failure}, {time.Second, failure}}},
		"two slow failures are not enough":          {probes: []probe{{0, failure}, {12 * time.Second, failure}}},
		"three failures over ten seconds":           {probes: []probe{{0, failure}, {6 * time.Second, failure}, {6 * time.Second, failure}}, want: clusters.StateUnreachable},
		"a success in between starts anew":          {probes: []probe{{0, failure}, {6 * time.Second, nil}, {6 * time.Second, failure}, {time.Second, failure}}},
		"one 401 is not enough":                     {probes: []probe{{0, refusedHere}}},
		"two 401s":                                  {probes: []probe{{0, refusedHere}, {time.Second, refusedHere}}, want: clusters.StateAuthFailed},
		"one good probe does not bring it back":     {probes: []probe{{0, refusedHere}, {0, refusedHere}, {0, nil}}, want: clusters.StateAuthFailed},
		"two good probes bring it back":             {probes: []probe{{0, refusedHere}, {0, refusedHere}, {0, nil}, {0, nil}}},
		"good probes with a bad one between do not": {probes: []probe{{0, refusedHere}, {0, refusedHere}, {0, nil}, {0, failure}, {0, nil}}, want: clusters.StateAuthFailed},
	} {
		t.Run(name, func(t *testing.T) {
			h := health{policy: Health{}.withDefaults()}
			now := start
			for _, p := range tc.probes {
				now = now.Add(p.after)
				h.observe(now, p.err)
			}
			if h.away != tc.want {
				t.Errorf("got %q, want %q", h.away, tc.want)
			}
		})
	}
}

func TestHealth_due(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	h := health{policy: Health{}.withDefaults(), lastGood: start, lastProbe: start}
	if due := h.due(time.Time{}); due.Before(start.Add(8*time.Second)) || due.After(start.Add(12*time.Second)) {
		t.Errorf("idle: due after %s", due.Sub(start))
	}
	if due := h.due(start.Add(time.Hour)); due.Before(start.Add(time.Hour + 8*time.Second)) {
		t.Errorf("with traffic: due after %s", due.Sub(start))
	}
	if once, again := h.due(time.Time{}), h.due(time.Time{}); once != again {
		t.Errorf("the time must not change until something is heard: %s, then %s", once, again)
	}
	// Members that were heard of one after the other are not probed at the same pace.
	pauses := map[time.Duration]bool{}
	for i := range 100 {
		heard := start.Add(time.Duration(i) * time.Second)
		pause := h.due(heard).Sub(heard)
		if pause < 8*time.Second || pause > 12*time.Second {
			t.Errorf("heard %s after the start: due after %s", heard.Sub(start), pause)
		}
		pauses[pause] = true
	}
	if len(pauses) < 90 {
		t.Errorf("the pauses are not spread: %d different ones of 100", len(pauses))
	}
	h.asked = true
	if due := h.due(start.Add(time.Hour)); due != start.Add(time.Second) {
		t.Errorf("asked for: due after %s", due.Sub(start))
	}
	// The worst case of a black hole: each probe takes its whole timeout.
	h = health{policy: h.policy, lastGood: start, lastProbe: start}
	now := start
	for h.away == "" {
		now = h.due(time.Time{}).Add(h.timeout())
		h.observe(now, verdict.StatusError(500))
	}
	if took := now.Sub(start); took > 29*time.Second {
		t.Errorf("unreachable after %s, want at most 29s", took)
	}
	if due := h.due(time.Time{}); due != now.Add(time.Second) {
		t.Errorf("away: due after %s", due.Sub(now))
	}
	h.observe(now.Add(3*time.Minute), verdict.StatusError(500))
	if due := h.due(time.Time{}).Sub(h.lastProbe); due != 10*time.Second {
		t.Errorf("long away: due after %s", due)
	}
}
