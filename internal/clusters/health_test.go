// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	failure, refusedHere := statusError(500), statusError(401)
	type probe struct {
		after time.Duration
		err   error
	}
	for name, tc := range map[string]struct {
		probes []probe
		want   State
	}{
		"three quick failures are not enough":       {probes: []probe{{0, failure}, {time.Second, failure}, {time.Second, failure}}},
		"two slow failures are not enough":          {probes: []probe{{0, failure}, {12 * time.Second, failure}}},
		"three failures over ten seconds":           {probes: []probe{{0, failure}, {6 * time.Second, failure}, {6 * time.Second, failure}}, want: StateUnreachable},
		"a success in between starts anew":          {probes: []probe{{0, failure}, {6 * time.Second, nil}, {6 * time.Second, failure}, {time.Second, failure}}},
		"one 401 is not enough":                     {probes: []probe{{0, refusedHere}}},
		"two 401s":                                  {probes: []probe{{0, refusedHere}, {time.Second, refusedHere}}, want: StateAuthFailed},
		"one good probe does not bring it back":     {probes: []probe{{0, refusedHere}, {0, refusedHere}, {0, nil}}, want: StateAuthFailed},
		"two good probes bring it back":             {probes: []probe{{0, refusedHere}, {0, refusedHere}, {0, nil}, {0, nil}}},
		"good probes with a bad one between do not": {probes: []probe{{0, refusedHere}, {0, refusedHere}, {0, nil}, {0, failure}, {0, nil}}, want: StateAuthFailed},
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
		h.observe(now, statusError(500))
	}
	if took := now.Sub(start); took > 29*time.Second {
		t.Errorf("unreachable after %s, want at most 29s", took)
	}
	if due := h.due(time.Time{}); due != now.Add(time.Second) {
		t.Errorf("away: due after %s", due.Sub(now))
	}
	h.observe(now.Add(3*time.Minute), statusError(500))
	if due := h.due(time.Time{}).Sub(h.lastProbe); due != 10*time.Second {
		t.Errorf("long away: due after %s", due)
	}
}

func TestRetries(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := retries{}
	for elapsed := time.Duration(0); elapsed < eagerRetries; {
		delay := r.next(now.Add(elapsed), false)
		if delay > 12*time.Second {
			t.Fatalf("after %s the next try is in %s: a member that is back would wait", elapsed, delay)
		}
		elapsed += delay
	}
	var last time.Duration
	for range 10 {
		last = r.next(now.Add(time.Hour), false)
	}
	if last < 5*time.Minute || last > 6*time.Minute {
		t.Errorf("in the end tries are %s apart", last)
	}
	if delay := r.next(now, true); delay > 6*time.Second {
		t.Errorf("a member that lacks something is looked at again in %s", delay)
	}
}
