// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// credentialFor is a credential for a fake server with the given token.
func credentialFor(t testing.TB, server *httptest.Server, token string) *registration.Credential {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	raw := clusterstest.Kubeconfig(t, server.URL, ca, func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Token = token })
	accepted, refused := registration.Parse(raw, &registration.Rules{})
	if refused != nil {
		t.Fatal(refused)
	}
	return accepted
}

func TestCacheWay_counts_lists_of_filled_caches(t *testing.T) {
	const list, page = "/api/v1/nodes?limit=500&resourceVersion=0", "/api/v1/nodes?limit=500&continue=x"
	const resume, watchList = "/api/v1/events?watch=true&resourceVersion=1", "/api/v1/nodes?watch=true&sendInitialEvents=true"
	for name, tc := range map[string]struct {
		path                 string
		filling, noWatchList bool
		want                 int
	}{
		"a list":                          {path: list, want: 1},
		"a further page":                  {path: page},
		"a resumed watch":                 {path: resume},
		"a watch that begins with a list": {path: watchList, want: 1},
		"one that is not sent":            {path: watchList, noWatchList: true},
		"the list after it":               {path: list, noWatchList: true, want: 1},
		"the first list":                  {path: list, filling: true},
		"the first watch, with its list":  {path: watchList, filling: true},
		"one object, which is no list":    {path: "/api/v1/nodes/a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTransportFixture(t)
			counted := 0
			f.transport.Relisted = func() { counted++ }
			f.transport.lists.Store(tc.noWatchList)
			f.transport.guarded = !tc.filling
			f.api.status.Store(http.StatusNotFound)
			f.client = Client(f.transport.ForCache())
			if _, _, err := f.get(t.Context(), tc.path); err != nil {
				t.Fatal(err)
			}
			if counted != tc.want {
				t.Errorf("counted %d lists, want %d", counted, tc.want)
			}
		})
	}
}

// fakeAPI answers calls, and streams watches until it is asked to end them.
type fakeAPI struct {
	status  atomic.Int32
	watches chan *http.Request
	tokens  sync.Map
	// stall makes calls wait; stalled counts them.
	stall   atomic.Bool
	stalled atomic.Int32
	// writes counts requests whose body has arrived.
	writes atomic.Int32
	// quiet makes watches open without an event.
	quiet atomic.Bool
	// lost is how many more watches are received and never answered.
	lost atomic.Int32
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
		if f.lost.Add(-1) >= 0 {
			<-req.Context().Done()
			return
		}
		if !f.quiet.Load() {
			_, _ = io.WriteString(w, "event\n")
		}
		w.(http.Flusher).Flush()
		<-req.Context().Done()
		return
	}
	if req.Method == http.MethodPost {
		if _, err := io.ReadAll(req.Body); err != nil {
			return
		}
		f.writes.Add(1)
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
	transport *Transport
	client    *http.Client
	kicks     chan struct{}
}

func (f *transportFixture) kick() {
	select {
	case f.kicks <- struct{}{}:
	default:
	}
}

func newTransportFixture(t *testing.T) *transportFixture {
	t.Helper()
	f := &transportFixture{api: &fakeAPI{watches: make(chan *http.Request, 16)}, kicks: make(chan struct{}, 1)}
	server := clusterstest.TLSServer(t, f.api)
	l, err := NewLink(credentialFor(t, server, "one"), clock.RealClock{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f.transport = New(l, clock.RealClock{}, Options{Kick: f.kick})
	f.transport.Guard()
	f.client = Client(f.transport)
	t.Cleanup(f.transport.Close)
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
			err = verdict.StatusError(status)
		}
		ended <- err
	}()
	return ended
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
	clusterstest.Await(t, "the first watch", f.api.watches)
	f.transport.OpenBreaker()
	if err := clusterstest.Await(t, "the end of the first watch", first); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("the open watch ended with %v, want exactly io.ErrUnexpectedEOF", err)
	}
	if _, _, err := f.get(t.Context(), "/api/v1/pods"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a call while away: got %v, want connection refused", err)
	}
	if _, _, err := f.get(AsProbe(t.Context()), "/readyz"); err != nil {
		t.Errorf("a probe while away: %v", err)
	}
	parked := f.stream(t.Context())
	f.transport.GoodProbe()
	select {
	case <-f.api.watches:
		t.Fatal("a watch was sent while the breaker is open")
	case err := <-parked:
		t.Fatalf("the parked watch ended with %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.transport.CloseBreaker()
	clusterstest.Await(t, "the parked watch", f.api.watches)
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
				if err := clusterstest.Await(t, "the answer", ended); !errors.Is(err, verdict.StatusError(tc.status)) {
					t.Errorf("got %v, want it passed on", err)
				}
				return
			}
			clusterstest.Await(t, "the wish for a probe", f.kicks)
			f.api.status.Store(0)
			f.transport.GoodProbe()
			clusterstest.Await(t, "the watch to be sent again", f.api.watches)
		})
	}
}

func TestTransport_passes_a_second_403_on(t *testing.T) {
	f := newTransportFixture(t)
	f.api.status.Store(http.StatusForbidden)
	ended := f.stream(t.Context())
	clusterstest.Await(t, "the wish for a probe", f.kicks)
	f.transport.GoodProbe()
	if err := clusterstest.Await(t, "the answer", ended); !errors.Is(err, verdict.StatusError(http.StatusForbidden)) {
		t.Errorf("got %v, want 403", err)
	}
}

func TestTransport_held_watch_ends_with_its_context(t *testing.T) {
	f := newTransportFixture(t)
	f.transport.OpenBreaker()
	ctx, cancel := context.WithCancel(t.Context())
	ended := f.stream(ctx)
	cancel()
	if err := clusterstest.Await(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// underWay opens a watch and starts a call that is not answered, and returns the ends of both.
func (f *transportFixture) underWay(t *testing.T) (watch, call <-chan error) {
	t.Helper()
	ended := f.stream(t.Context())
	clusterstest.Await(t, "the watch", f.api.watches)
	for f.transport.streams.reading() == 0 {
		runtime.Gosched()
	}
	f.api.stall.Store(true)
	running := make(chan error, 1)
	go func() { _, _, err := f.get(t.Context(), "/api/v1/nodes/a"); running <- err }()
	for f.api.stalled.Load() == 0 {
		runtime.Gosched()
	}
	return ended, running
}

func TestTransport_rotates_without_failing_calls(t *testing.T) {
	f := newTransportFixture(t)
	second := &fakeAPI{watches: make(chan *http.Request, 16)}
	server := clusterstest.TLSServer(t, second)
	ended, running := f.underWay(t)
	l, err := NewLink(credentialFor(t, server, "two"), clock.RealClock{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f.transport.Swap(l)
	if err := clusterstest.Await(t, "the end of the old watch", ended); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("the old watch ended with %v", err)
	}
	if body, _, err := f.get(t.Context(), "/api/v1/nodes/b"); err != nil || !strings.HasPrefix(body, "ok") {
		t.Errorf("a call after the rotation: %q, %v", body, err)
	}
	if _, sent := second.tokens.Load("Bearer two"); !sent {
		t.Error("the new token was not used at the new server")
	}
	f.api.stall.Store(false)
	if err := clusterstest.Await(t, "the call that was under way", running); err != nil {
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
