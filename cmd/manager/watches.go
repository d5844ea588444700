// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
)

const (
	// watchRetry is the interval between attempts to open a watch of the hub.
	watchRetry = time.Second
	// hubSilence is how long a watch of the hub may be retried before it is listed again instead of resumed. The revisions
	// of a hub that was restored may have overtaken that of the watch meanwhile.
	hubSilence = time.Minute
)

// errHubRestored ends the process because the revisions of the hub went back. Its caches, and what was derived from them,
// may hold a history that no longer exists; an API server accepts watches from a future revision and skips all events up
// to it.
var errHubRestored = errors.New("the hub went back to an earlier state; a new process reads it again")

// patientWatches retries watches of the hub that cannot be opened until the hub answers. Reflectors back off up to a
// minute after failed attempts, so after a short outage changes on the hub would not be observed for that long. A watch
// that may have missed changes is not resumed.
type patientWatches struct {
	http.RoundTripper
	clock clock.Clock
	// restored is called with errHubRestored.
	restored func(error)

	mu      sync.Mutex // Guards reached; never held while blocking.
	reached map[string]uint64
}

// holdWatches returns a function that wraps the transport of the hub's clients in patientWatches.
func holdWatches(restored func(error)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return &patientWatches{RoundTripper: next, clock: clock.RealClock{}, restored: restored, reached: map[string]uint64{}}
	}
}

// RoundTrip implements http.RoundTripper. It only retries watches; all other requests fail at once.
func (p *patientWatches) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet || req.URL.Query().Get("watch") != "true" {
		return p.RoundTripper.RoundTrip(req)
	}
	began, unsure := p.clock.Now(), false
	for {
		resp, err := transport.AwaitAnswer(req, p.RoundTripper, p.clock)
		switch {
		case err != nil || isAbsent(resp):
		case resp.StatusCode != http.StatusOK:
			return resp, nil
		default:
			missed := p.missed(req, began)
			if missed == nil {
				return resp, nil
			}
			_ = resp.Body.Close()
			if errors.Is(missed, errHubRestored) {
				p.restored(missed)
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			if unsure || errors.Is(missed, errSilent) {
				return transport.ExpiredResponse(req), nil
			}
			resp, err, unsure = nil, missed, true
		}
		timer := p.clock.NewTimer(watchRetry)
		select {
		case <-req.Context().Done():
			timer.Stop()
			return resp, err
		case <-timer.C():
		}
		if resp != nil {
			// Reading the body to its end allows the connection to be reused by the next attempt.
			_, _ = io.CopyN(io.Discard, resp.Body, 1<<12)
			_ = resp.Body.Close()
		}
	}
}

// errSilent means that a watch was retried for longer than hubSilence.
var errSilent = errors.New("the hub was away for too long")

// missed returns nil if a watch that is open now delivers everything that happens, errHubRestored if it skips events, and
// another error if that is unknown.
func (p *patientWatches) missed(req *http.Request, began time.Time) error {
	query := req.URL.Query()
	revision, resumes := transport.ResumesFrom(query)
	if !resumes {
		return nil
	}
	if p.clock.Since(began) > hubSilence {
		return errSilent
	}
	current, err := transport.ReadRevision(req, selected(query), p.RoundTripper)
	if err != nil {
		return fmt.Errorf("reading the revision of the hub: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	highest := max(revision, p.reached[req.URL.Path])
	if current < highest {
		return fmt.Errorf("%w: %s was at revision %d and is at %d", errHubRestored, req.URL.Path, highest, current)
	}
	p.reached[req.URL.Path] = current
	return nil
}

// selected returns the query that selects the objects of a watch.
func selected(watch url.Values) url.Values {
	selects := url.Values{}
	for _, selector := range []string{"labelSelector", "fieldSelector"} {
		if value := watch.Get(selector); value != "" {
			selects.Set(selector, value)
		}
	}
	return selects
}

// isAbsent reports whether a proxy in front of the hub answers because the hub does not.
func isAbsent(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
