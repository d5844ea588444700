// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// absence answers with errors, or as a proxy before the hub does, for as long as it has some; then all is well.
type absence struct {
	errs  []error
	codes []int
	asked []time.Time
}

// RoundTrip implements http.RoundTripper.
func (a *absence) RoundTrip(*http.Request) (*http.Response, error) {
	a.asked = append(a.asked, time.Now())
	recorder := httptest.NewRecorder()
	switch {
	case len(a.errs) > 0:
		err := a.errs[0]
		a.errs = a.errs[1:]
		return nil, err
	case len(a.codes) > 0:
		recorder.WriteHeader(a.codes[0])
		a.codes = a.codes[1:]
	}
	return recorder.Result(), nil
}

func watchRequest(ctx context.Context, t *testing.T, method, query string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://hub.example/apis/flotilla.dev/v1alpha1/redises"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestHub_watch_is_held_until_the_hub_answers(t *testing.T) {
	for name, away := range map[string]*absence{
		"refuses":              {errs: []error{syscall.ECONNREFUSED, syscall.ECONNREFUSED}},
		"behind a proxy":       {codes: []int{http.StatusBadGateway, http.StatusServiceUnavailable}},
		"behind a slow proxy":  {codes: []int{http.StatusGatewayTimeout, http.StatusGatewayTimeout}},
		"away, then starts up": {errs: []error{syscall.ECONNRESET}, codes: []int{http.StatusServiceUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				resp, err := holdWatches(away).RoundTrip(watchRequest(t.Context(), t, http.MethodGet, "?watch=true&resourceVersion=5"))
				if err != nil {
					t.Fatalf("the watch failed although the hub came back: %v", err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || len(away.asked) != 3 {
					t.Errorf("status %d after %d attempts, want 200 after 3", resp.StatusCode, len(away.asked))
				}
				if took := time.Since(began); took > 2*watchRetry {
					t.Errorf("the watch was open after %v; a second after the hub is back is soon enough", took)
				}
			})
		})
	}
}

func TestHub_watch_that_is_held_ends_with_its_context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		away := &absence{}
		for range 100 {
			away.errs = append(away.errs, syscall.ECONNREFUSED)
		}
		if _, err := holdWatches(away).RoundTrip(watchRequest(ctx, t, http.MethodGet, "?watch=true")); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the watch ended with %v", err)
		}
		if len(away.asked) > 11 {
			t.Errorf("%d attempts in 10 seconds", len(away.asked))
		}
	})
}

func TestHub_everything_but_a_hub_that_is_away_is_told_at_once(t *testing.T) {
	for name, tc := range map[string]struct {
		method, query string
		away          *absence
	}{
		"a list":                            {http.MethodGet, "", &absence{errs: []error{syscall.ECONNREFUSED}}},
		"a write":                           {http.MethodPatch, "", &absence{errs: []error{syscall.ECONNREFUSED}}},
		"a watch that is refused":           {http.MethodGet, "?watch=true", &absence{codes: []int{http.StatusForbidden}}},
		"a watch that is too much":          {http.MethodGet, "?watch=true", &absence{codes: []int{http.StatusTooManyRequests}}},
		"a watch that the hub cannot serve": {http.MethodGet, "?watch=true", &absence{codes: []int{http.StatusInternalServerError}}},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := holdWatches(tc.away).RoundTrip(watchRequest(t.Context(), t, tc.method, tc.query))
			if err == nil {
				_ = resp.Body.Close()
			}
			if err == nil && resp.StatusCode == http.StatusOK || len(tc.away.asked) != 1 {
				t.Errorf("status and error %v, %v after %d attempts, want what the first one said", resp, err, len(tc.away.asked))
			}
		})
	}
}
