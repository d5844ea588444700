// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// Health is the health policy. Zero fields take their defaults.
type Health struct {
	// Interval is the time from the last traffic to the next probe, plus or minus 20 %. Defaults to 10s.
	Interval time.Duration
	// Timeout is the deadline of a probe. Defaults to 5s.
	Timeout time.Duration
	// Retry is the time from a failure to the next probe. Defaults to 1s.
	Retry time.Duration
	// Failures is how many consecutive failures, over at least Patience, make a member unreachable. Defaults to 3 and
	// 10s. Refused connections fail immediately; without Patience, a restarting API server would count as an outage.
	Failures int
	Patience time.Duration
	// AwayTimeout is the deadline of a probe while the member is away. Defaults to 3s.
	AwayTimeout time.Duration
	// AwayInterval is the interval of probes once the member has been away for AwayEager. Defaults to 10s and 2m.
	AwayInterval, AwayEager time.Duration
}

// withDefaults returns h with defaults for its zero fields.
func (h Health) withDefaults() Health {
	h.Interval = cmp.Or(h.Interval, 10*time.Second)
	h.Timeout = cmp.Or(h.Timeout, 5*time.Second)
	h.Retry = cmp.Or(h.Retry, time.Second)
	h.Failures = cmp.Or(h.Failures, 3)
	h.Patience = cmp.Or(h.Patience, 10*time.Second)
	h.AwayTimeout = cmp.Or(h.AwayTimeout, 3*time.Second)
	h.AwayInterval = cmp.Or(h.AwayInterval, 10*time.Second)
	h.AwayEager = cmp.Or(h.AwayEager, 2*time.Minute)
	return h
}

// recoveries is how many consecutive successful probes end an outage.
const recoveries = 2

// unauthorizedLimit is how many consecutive 401 responses mean that the credential is refused.
const unauthorizedLimit = 2

// health aggregates the probes of a member. It belongs to the member's goroutine.
type health struct {
	policy Health

	failures     int
	firstFailure time.Time
	unauthorized int
	goods        int
	// away is StateUnreachable or StateAuthFailed, or empty while the member answers.
	away      clusters.State
	awaySince time.Time
	lastProbe time.Time
	lastGood  time.Time
	// asked is true when a probe has been requested.
	asked bool
}

// observe records the outcome of a probe or of a connection attempt and reports whether away changed.
func (h *health) observe(now time.Time, err error) bool {
	before := h.away
	h.lastProbe = now
	if err == nil {
		h.failures, h.unauthorized = 0, 0
		h.goods++
		h.lastGood = now
		if h.goods >= recoveries {
			h.away = ""
		}
		return h.away != before
	}
	h.goods = 0
	if h.failures == 0 {
		h.firstFailure = now
	}
	h.failures++
	if verdict.IsUnauthorized(err) {
		h.unauthorized++
	} else {
		h.unauthorized = 0
	}
	switch {
	case h.unauthorized >= unauthorizedLimit:
		h.away = clusters.StateAuthFailed
	case h.unauthorized > 0:
	case h.failures >= h.policy.Failures && now.Sub(h.firstFailure) >= h.policy.Patience:
		h.away = clusters.StateUnreachable
	}
	if before == "" && h.away != "" {
		h.awaySince = now
	}
	return h.away != before
}

// due returns when the next probe is due, given the time of the last traffic.
func (h *health) due(lastTraffic time.Time) time.Time {
	retry := h.lastProbe.Add(h.policy.Retry)
	switch {
	case h.away != "" && h.goods == 0 && h.lastProbe.Sub(h.awaySince) >= h.policy.AwayEager:
		return h.lastProbe.Add(h.policy.AwayInterval)
	case h.asked || h.failures > 0 || h.away != "":
		return retry
	}
	heard := h.lastGood
	if lastTraffic.After(heard) {
		heard = lastTraffic
	}
	// The jitter is derived from the time itself, so that the result is stable until the next traffic.
	spread := time.Duration(rand.New(rand.NewPCG(uint64(heard.UnixNano()), 1)).Int64N(int64(h.policy.Interval)*2/5 + 1))
	return heard.Add(h.policy.Interval*4/5 + spread)
}

// timeout returns the deadline of the next probe.
func (h *health) timeout() time.Duration {
	if h.away != "" {
		return h.policy.AwayTimeout
	}
	return h.policy.Timeout
}
