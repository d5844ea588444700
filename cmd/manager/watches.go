// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"time"

	"k8s.io/utils/clock"
)

// watchRetry is how long a watch of the hub that could not be opened waits for the next attempt.
const watchRetry = time.Second

// patientWatches holds watches of the hub that cannot be opened until it answers. Reflectors, which keep the caches, wait
// longer after each attempt that fails, up to a minute: so long after a short outage nobody would see a change on the hub.
type patientWatches struct {
	http.RoundTripper
	clock clock.Clock
}

// holdWatches wraps the transport of the hub's clients.
func holdWatches(next http.RoundTripper) http.RoundTripper {
	return patientWatches{RoundTripper: next, clock: clock.RealClock{}}
}

// RoundTrip implements http.RoundTripper. Everything but watches fails as soon as it does.
func (p patientWatches) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || req.URL.Query().Get("watch") != "true" {
		return p.RoundTripper.RoundTrip(req)
	}
	for {
		resp, err := p.RoundTripper.RoundTrip(req)
		if err == nil && !isAbsent(resp) {
			return resp, nil
		}
		timer := p.clock.NewTimer(watchRetry)
		select {
		case <-req.Context().Done():
			timer.Stop()
			return resp, err
		case <-timer.C():
		}
		if resp != nil {
			// What is read to its end leaves its connection to the next attempt.
			_, _ = io.CopyN(io.Discard, resp.Body, 1<<12)
			_ = resp.Body.Close()
		}
	}
}

// isAbsent says whether what stands before the hub answers because the hub does not.
func isAbsent(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
