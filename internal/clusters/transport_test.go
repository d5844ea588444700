// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// fakeAPI answers calls, and streams watches until it is told to end them.
type fakeAPI struct {
	status  atomic.Int32
	watches chan *http.Request
	tokens  sync.Map
	// stall makes calls wait; stalled counts them.
	stall   atomic.Bool
	stalled atomic.Int32
	// quiet makes watches open without an event.
	quiet atomic.Bool
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f.tokens.Store(req.Header.Get("Authorization"), true)
	if status := f.status.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	if req.URL.Path == "/redirect" {
		http.Redirect(w, req, "/elsewhere", http.StatusFound)
		return
	}
	if isWatch(req) {
		f.watches <- req
		if !f.quiet.Load() {
			_, _ = io.WriteString(w, "event\n")
		}
		w.(http.Flusher).Flush()
		<-req.Context().Done()
		return
	}
	for first := true; f.stall.Load(); first = false {
		if first {
			f.stalled.Add(1)
		}
		select {
		case <-req.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	_, _ = io.WriteString(w, "ok "+req.Proto)
}

type transportFixture struct {
	api       *fakeAPI
	transport *transport
	client    *http.Client
	kicks     chan struct{}
}

func newTransportFixture(t *testing.T) *transportFixture {
	t.Helper()
	f := &transportFixture{api: &fakeAPI{watches: make(chan *http.Request, 16)}, kicks: make(chan struct{}, 1)}
	server := tlsServer(t, f.api)
	l, err := newLink(credentialFor(t, server, "one"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	f.transport = newTransport(l, clock.RealClock{}, func() { signal(f.kicks) }, false)
	f.transport.guard()
	f.client = httpClient(f.transport)
	t.Cleanup(f.transport.close)
	return f
}

func (f *transportFixture) get(ctx context.Context, path string) (string, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://member"+path, nil)
	if err != nil {
		return "", 0, err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), resp.StatusCode, err
}

// stream opens a watch and returns what ends it.
func (f *transportFixture) stream(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, status, err := f.get(ctx, "/api/v1/pods?watch=true")
		if err == nil && status != http.StatusOK {
			err = statusError(status)
		}
		ended <- err
	}()
	return ended
}

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(time.Minute):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func TestTransport_speaks_HTTP2_and_follows_no_redirect(t *testing.T) {
	f := newTransportFixture(t)
	body, _, err := f.get(t.Context(), "/readyz")
	if err != nil || body != "ok HTTP/2.0" {
		t.Errorf("got %q, %v", body, err)
	}
	if _, status, err := f.get(t.Context(), "/redirect"); err != nil || status != http.StatusFound {
		t.Errorf("redirect: got %d, %v; want it handed back", status, err)
	}
	if _, sent := f.api.tokens.Load("Bearer one"); !sent {
		t.Error("the token was not sent")
	}
}

func TestTransport_breaker_fails_calls_and_parks_watches(t *testing.T) {
	f := newTransportFixture(t)
	first := f.stream(t.Context())
	await(t, "the first watch", f.api.watches)
	f.transport.openBreaker()
	if err := await(t, "the end of the first watch", first); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("the open watch ended with %v, want exactly io.ErrUnexpectedEOF", err)
	}
	if _, _, err := f.get(t.Context(), "/api/v1/pods"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a call while away: got %v, want connection refused", err)
	}
	if _, _, err := f.get(asProbe(t.Context()), "/readyz"); err != nil {
		t.Errorf("a probe while away: %v", err)
	}
	parked := f.stream(t.Context())
	f.transport.goodProbe()
	select {
	case <-f.api.watches:
		t.Fatal("a watch was sent while the breaker is open")
	case err := <-parked:
		t.Fatalf("the parked watch ended with %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.transport.closeBreaker()
	await(t, "the parked watch", f.api.watches)
	if _, _, err := f.get(t.Context(), "/api/v1/pods"); err != nil {
		t.Errorf("a call after the recovery: %v", err)
	}
}

func TestTransport_holds_failed_watches(t *testing.T) {
	for _, tc := range []struct {
		status int32
		held   bool
	}{
		{http.StatusUnauthorized, true},
		{http.StatusServiceUnavailable, true},
		{http.StatusForbidden, true},
		{http.StatusGone, false},
		{http.StatusTooManyRequests, false},
		{http.StatusNotFound, false},
	} {
		t.Run(http.StatusText(int(tc.status)), func(t *testing.T) {
			f := newTransportFixture(t)
			f.api.status.Store(tc.status)
			ended := f.stream(t.Context())
			if !tc.held {
				if err := await(t, "the answer", ended); !errors.Is(err, statusError(tc.status)) {
					t.Errorf("got %v, want it passed on", err)
				}
				return
			}
			await(t, "the wish for a probe", f.kicks)
			f.api.status.Store(0)
			f.transport.goodProbe()
			await(t, "the watch to be sent again", f.api.watches)
		})
	}
}

func TestTransport_passes_a_second_403_on(t *testing.T) {
	f := newTransportFixture(t)
	f.api.status.Store(http.StatusForbidden)
	ended := f.stream(t.Context())
	await(t, "the wish for a probe", f.kicks)
	f.transport.goodProbe()
	if err := await(t, "the answer", ended); !errors.Is(err, statusError(http.StatusForbidden)) {
		t.Errorf("got %v, want 403", err)
	}
}

func TestTransport_held_watch_ends_with_its_context(t *testing.T) {
	f := newTransportFixture(t)
	f.transport.openBreaker()
	ctx, cancel := context.WithCancel(t.Context())
	ended := f.stream(ctx)
	cancel()
	if err := await(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTransport_rotates_without_failing_calls(t *testing.T) {
	f := newTransportFixture(t)
	second := &fakeAPI{watches: make(chan *http.Request, 16)}
	server := tlsServer(t, second)
	ended := f.stream(t.Context())
	await(t, "the watch", f.api.watches)
	f.api.stall.Store(true)
	running := make(chan error, 1)
	go func() { _, _, err := f.get(t.Context(), "/api/v1/nodes/a"); running <- err }()
	for f.api.stalled.Load() == 0 {
		runtime.Gosched()
	}
	l, err := newLink(credentialFor(t, server, "two"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	f.transport.swap(l)
	if err := await(t, "the end of the old watch", ended); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("the old watch ended with %v", err)
	}
	if body, _, err := f.get(t.Context(), "/api/v1/nodes/b"); err != nil || !strings.HasPrefix(body, "ok") {
		t.Errorf("a call after the rotation: %q, %v", body, err)
	}
	if _, sent := second.tokens.Load("Bearer two"); !sent {
		t.Error("the new token was not used at the new server")
	}
	f.api.stall.Store(false)
	if err := await(t, "the call that was under way", running); err != nil {
		t.Errorf("the call that was under way failed: %v", err)
	}
}

func TestWatchBody_outlives_a_second_when_silent(t *testing.T) {
	reader, writer := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://member/api/v1/pods?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	body := newWatchBody(req, reader, clock.RealClock{}, func(*watchBody) {})
	started := time.Now()
	_ = writer.CloseWithError(errors.New("http2: client connection lost"))
	if _, err := body.Read(make([]byte, 1)); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("got %v", err)
	}
	if lived := time.Since(started); lived < time.Second {
		t.Errorf("the silent stream ended after %s; a reflector would list again", lived)
	}
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := body.Read(make([]byte, 1)); err == io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Error("a stream that its reader closed must not look broken")
	}
}

func TestIsList(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/pods": true, "/api/v1/namespaces": true, "/api/v1/namespaces/a": false, "/api/v1/namespaces/a/pods": true,
		"/api/v1/namespaces/a/pods/b": false, "/apis/apps/v1/statefulsets": true, "/apis/flotilla.dev/v1alpha1/nodepools/a": false,
		"/apis/flotilla.dev/v1alpha1": false, "/readyz": false, "/version": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://member"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isList(req); got != want {
			t.Errorf("isList(%s): got %t", path, got)
		}
	}
}
