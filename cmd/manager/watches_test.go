// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
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
	// lost is how many requests are never answered. revision is what the hub has reached; unknown is how many questions for
	// it fail.
	lost, revision, unknown int
}

// RoundTrip implements http.RoundTripper.
func (a *absence) RoundTrip(req *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	if req.URL.Query().Get("limit") == "1" {
		if a.unknown > 0 {
			a.unknown--
			recorder.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = fmt.Fprintf(recorder, `{"metadata":{"resourceVersion":"%d"}}`, max(a.revision, 5))
		return recorder.Result(), nil
	}
	a.asked = append(a.asked, time.Now())
	switch {
	case a.lost > 0:
		a.lost--
		<-req.Context().Done()
		return nil, req.Context().Err()
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

// hubWatches is the way to a hub that does not go back.
func hubWatches(t *testing.T, hub http.RoundTripper) http.RoundTripper {
	t.Helper()
	return holdWatches(func(err error) { t.Errorf("the process ends: %v", err) })(hub)
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
				resp, err := hubWatches(t, away).RoundTrip(watchRequest(t.Context(), t, http.MethodGet, "?watch=true&resourceVersion=5"))
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
		if _, err := hubWatches(t, away).RoundTrip(watchRequest(ctx, t, http.MethodGet, "?watch=true")); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the watch ended with %v", err)
		}
		if len(away.asked) > 11 {
			t.Errorf("%d attempts in 10 seconds", len(away.asked))
		}
	})
}

func TestHub_that_went_back_ends_the_process(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		hub := &absence{revision: 100}
		way := holdWatches(cancel)(hub)
		resp, err := way.RoundTrip(watchRequest(ctx, t, http.MethodGet, "?watch=true&resourceVersion=100"))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("the first watch: %v, %v", resp, err)
		}
		_ = resp.Body.Close()
		hub.revision = 90
		resp, err = way.RoundTrip(watchRequest(ctx, t, http.MethodGet, "?watch=true&resourceVersion=100"))
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("status %d for a watch that skips the next 10 changes", resp.StatusCode)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, errHubRestored) {
			t.Errorf("the process goes on: %v", cause)
		}
	})
}

// manager is one that ends with its context, or at once with an error.
type manager struct{ err error }

// Start implements manager.Manager.
func (m manager) Start(ctx context.Context) error {
	if m.err == nil {
		<-ctx.Done()
	}
	return m.err
}

func TestStart_returns_why_the_process_ends(t *testing.T) {
	broken := errors.New("the port is in use")
	for name, tc := range map[string]struct{ manager, cause, want error }{
		"a signal":          {nil, context.Canceled, nil},
		"the hub went back": {nil, fmt.Errorf("%w: redises", errHubRestored), errHubRestored},
		"it cannot run":     {broken, context.Canceled, broken},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(tc.cause)
			if err := start(ctx, manager{tc.manager}); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestHub_that_went_back_is_noticed_by_a_watch_that_listed has the server itself make the reflector list.
func TestHub_that_went_back_is_noticed_by_a_watch_that_listed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		hub := &absence{revision: 100}
		way := holdWatches(cancel)(hub)
		resp, err := way.RoundTrip(watchRequest(ctx, t, http.MethodGet, "?watch=true&resourceVersion=100"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		hub.revision = 90
		if resp, err := way.RoundTrip(watchRequest(ctx, t, http.MethodGet, "?watch=true&resourceVersion=90")); err == nil {
			_ = resp.Body.Close()
		}
		if cause := context.Cause(ctx); !errors.Is(cause, errHubRestored) {
			t.Errorf("the process goes on: %v", cause)
		}
	})
}

func TestHub_watch_is_listed_again_when_changes_may_be_missed(t *testing.T) {
	unreachable := &absence{}
	for range int(hubSilence/watchRetry) + 1 {
		unreachable.errs = append(unreachable.errs, syscall.ECONNREFUSED)
	}
	for name, hub := range map[string]*absence{
		"away for long":            unreachable,
		"the revision is unknown":  {unknown: 2},
		"unknown, then it is away": {unknown: 2, codes: []int{http.StatusServiceUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resp, err := hubWatches(t, hub).RoundTrip(watchRequest(t.Context(), t, http.MethodGet, "?watch=true&resourceVersion=5"))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusGone {
					t.Errorf("status %d, want 410, which makes the reflector list", resp.StatusCode)
				}
			})
		})
	}
}

func TestHub_watch_that_is_never_answered_is_sent_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		hub := &absence{lost: 1}
		resp, err := hubWatches(t, hub).RoundTrip(watchRequest(ctx, t, http.MethodGet, "?watch=true&resourceVersion=5"))
		if err != nil {
			t.Fatalf("the watch was waited for in vain: %v", err)
		}
		_ = resp.Body.Close()
		if len(hub.asked) != 2 || resp.StatusCode != http.StatusOK {
			t.Errorf("status %d after %d attempts", resp.StatusCode, len(hub.asked))
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
			resp, err := hubWatches(t, tc.away).RoundTrip(watchRequest(t.Context(), t, tc.method, tc.query))
			if err == nil {
				_ = resp.Body.Close()
			}
			if err == nil && resp.StatusCode == http.StatusOK || len(tc.away.asked) != 1 {
				t.Errorf("status and error %v, %v after %d attempts, want what the first one said", resp, err, len(tc.away.asked))
			}
		})
	}
}
