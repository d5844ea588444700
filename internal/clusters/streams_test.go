// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// historian is an API server that is at a revision.
type historian struct {
	fakeAPI
	revision atomic.Int64
	fails    atomic.Int32
	lists    atomic.Int32
}

func (h *historian) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if isWatch(req) {
		h.fakeAPI.ServeHTTP(w, req)
		return
	}
	h.lists.Add(1)
	if status := h.fails.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"%d"}}`, h.revision.Load())
}

// newHistorian returns a transport to a historian, with a clock of its own.
func newHistorian(t *testing.T) (*transportFixture, *historian, *clocktesting.FakePassiveClock) {
	t.Helper()
	h := &historian{fakeAPI: fakeAPI{watches: make(chan *http.Request, 16)}}
	h.revision.Store(100)
	l, err := newLink(credentialFor(t, tlsServer(t, h), "one"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	f := &transportFixture{api: &h.fakeAPI, kicks: make(chan struct{}, 1)}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	f.transport = newTransport(l, clk, func() { signal(f.kicks) }, false)
	f.transport.guard()
	f.client = httpClient(f.transport)
	t.Cleanup(f.transport.close)
	return f, h, clk
}

// reading is how many watches are open.
func (s *streams) reading() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// resume opens a watch of a collection from a revision.
func (f *transportFixture) resume(t *testing.T, collection string, revision int) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		body, status, err := f.get(t.Context(), fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&resourceVersion=%d", collection, revision))
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%w: %s", statusError(status), body)
		}
		ended <- err
	}()
	return ended
}

func wantGone(t *testing.T, ended <-chan error) {
	t.Helper()
	if err := await(t, "the answer", ended); !errors.Is(err, statusError(http.StatusGone)) {
		t.Errorf("got %v, want 410", err)
	}
}

func TestStreams_resume_what_the_member_has_reached(t *testing.T) {
	f, h, _ := newHistorian(t)
	f.resume(t, "/api/v1/nodes", 100)
	await(t, "the first watch", h.watches)
	f.resume(t, "/api/v1/pods", 99)
	await(t, "the second watch", h.watches)
	if asked := h.lists.Load(); asked != 1 {
		t.Errorf("the revision was read %d times for watches that come back together, want once", asked)
	}
	if err := f.transport.cause(); err != nil {
		t.Errorf("the session broke: %v", err)
	}
}

func TestStreams_find_that_a_member_went_back(t *testing.T) {
	f, h, clk := newHistorian(t)
	f.resume(t, "/api/v1/nodes", 100)
	await(t, "the watch", h.watches)
	h.revision.Store(90)
	clk.SetTime(clk.Now().Add(2 * revisionLife))
	wantGone(t, f.resume(t, "/apis/flotilla.dev/v1alpha1/redises", 95))
	if err := f.transport.cause(); !errors.Is(err, errRestored) {
		t.Errorf("the session goes on: %v", err)
	}
}

func TestStreams_leave_others_alone(t *testing.T) {
	f, h, _ := newHistorian(t)
	f.resume(t, "/apis/metrics.k8s.io/v1beta1/nodes", 1000)
	await(t, "the watch of an aggregated kind", h.watches)
	f.resume(t, "/api/v1/events", 1000)
	await(t, "the watch of events", h.watches)
	f.resume(t, "/api/v1/nodes", 0)
	await(t, "a watch from anywhere", h.watches)
	if h.lists.Load() != 0 {
		t.Error("revisions were compared that cannot be")
	}
}

func TestStreams_list_again_after_a_long_outage(t *testing.T) {
	f, h, clk := newHistorian(t)
	first := f.resume(t, "/api/v1/nodes", 100)
	await(t, "the watch", h.watches)
	f.transport.openBreaker()
	if err := await(t, "the end", first); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("got %v", err)
	}
	h.revision.Store(200)
	clk.SetTime(clk.Now().Add(longSilence + time.Second))
	parked := f.resume(t, "/api/v1/nodes", 100)
	f.transport.closeBreaker()
	wantGone(t, parked)
	f.resume(t, "/api/v1/nodes", 200)
	await(t, "the watch after the list", h.watches)

	f.resume(t, "/api/v1/pods", 200)
	await(t, "the first watch of another kind", h.watches)
}

func TestStreams_list_when_in_doubt(t *testing.T) {
	f, h, _ := newHistorian(t)
	h.fails.Store(http.StatusInternalServerError)
	ended := f.resume(t, "/api/v1/nodes", 100)
	await(t, "the wish for a probe", f.kicks)
	f.transport.goodProbe()
	wantGone(t, ended)
	if err := f.transport.cause(); err != nil {
		t.Errorf("the session broke: %v", err)
	}
}

func TestResumedRevision(t *testing.T) {
	for raw, want := range map[string]uint64{
		"/api/v1/pods?watch=true&resourceVersion=7":                                     7,
		"/apis/node.k8s.io/v1/runtimeclasses?watch=true&resourceVersion=7":              7,
		"/api/v1/pods?watch=true":                                                       0,
		"/api/v1/pods?watch=true&resourceVersion=garbage":                               0,
		"/api/v1/pods?watch=true&resourceVersion=7&sendInitialEvents=true":              0,
		"/apis/events.k8s.io/v1/events?watch=true&resourceVersion=7":                    0,
		"/apis/metrics.k8s.io/v1beta1/pods?watch=true&resourceVersion=7":                0,
		"/api/v1/namespaces/kube-system/configmaps/a?watch=true&resourceVersion=7":      0,
		"/apis/flotilla.dev/v1alpha1/nodepools?allowWatchBookmarks=1&resourceVersion=7": 7,
	} {
		u, err := url.Parse("https://member" + raw)
		if err != nil {
			t.Fatal(err)
		}
		if got, resumes := resumedRevision(u); got != want || resumes != (want > 0) {
			t.Errorf("%s: got %d, %t", raw, got, resumes)
		}
	}
}

func TestStreams_end_a_silent_watch(t *testing.T) {
	f, h, clk := newHistorian(t)
	f.api.quiet.Store(true)
	silent := f.resume(t, "/api/v1/nodes", 100)
	await(t, "the watch", h.watches)
	for f.transport.streams.reading() == 0 {
		runtime.Gosched()
	}
	clk.SetTime(clk.Now().Add(stallTime - time.Second))
	if ended, _, stalled := f.transport.streams.endStalled(); ended != 0 || len(stalled) > 0 {
		t.Fatalf("ended %d watches early, %v", ended, stalled)
	}
	clk.SetTime(clk.Now().Add(time.Second))
	if ended, _, stalled := f.transport.streams.endStalled(); ended != 1 || !slices.Equal(stalled, []string{"nodes"}) {
		t.Fatalf("ended %d watches, %v; want that of nodes", ended, stalled)
	}
	if err := await(t, "the end", silent); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("got %v, which is no reason to resume", err)
	}
	f.resume(t, "/api/v1/nodes", 100)
	await(t, "the watch to be resumed and not to be listed again", h.watches)
	if ended, _, stalled := f.transport.streams.endStalled(); ended != 0 || !slices.Equal(stalled, []string{"nodes"}) {
		t.Errorf("a watch that is open again but silent: ended %d, %v", ended, stalled)
	}
	f.transport.streams.hear("/api/v1/nodes")
	if _, _, stalled := f.transport.streams.endStalled(); len(stalled) > 0 {
		t.Errorf("%v delivers again", stalled)
	}
}
