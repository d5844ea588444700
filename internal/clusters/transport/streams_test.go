// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
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

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// historian is an API server that is at a revision.
type historian struct {
	fakeAPI
	revision atomic.Int64
	fails    atomic.Int32
	lists    atomic.Int32
	// past is the last question about the past; then is the object that there was, as JSON. compacted means that nobody
	// knows.
	past      atomic.Pointer[url.URL]
	then      atomic.Pointer[string]
	compacted atomic.Bool
}

func (h *historian) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if isWatch(req) {
		h.fakeAPI.ServeHTTP(w, req)
		return
	}
	h.lists.Add(1)
	items := ""
	if req.URL.Query().Get("resourceVersionMatch") == "Exact" {
		h.past.Store(req.URL)
		if h.compacted.Load() {
			w.WriteHeader(http.StatusGone)
			return
		}
		if then := h.then.Load(); then != nil {
			items = *then
		}
	}
	if status := h.fails.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, h.revision.Load(), items)
}

// newHistorian returns a transport to a historian, with a clock of its own.
func newHistorian(t *testing.T) (*transportFixture, *historian, *clocktesting.FakePassiveClock) {
	t.Helper()
	return newHistorianAt(t, clock.RealClock{})
}

// newHistorianAt also sets the clock of the link.
func newHistorianAt(t *testing.T, linkClock clock.Clock) (*transportFixture, *historian, *clocktesting.FakePassiveClock) {
	t.Helper()
	h := &historian{fakeAPI: fakeAPI{watches: make(chan *http.Request, 16)}}
	h.revision.Store(100)
	l, err := NewLink(credentialFor(t, clusterstest.TLSServer(t, h), "one"), linkClock, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f := &transportFixture{api: &h.fakeAPI, kicks: make(chan struct{}, 1)}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	f.transport = New(l, clk, Options{Kick: f.kick})
	f.transport.Guard()
	f.client = Client(f.transport)
	t.Cleanup(f.transport.Close)
	return f, h, clk
}

// reading is how many watches are open.
func (s *streams) reading() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// isLost reports whether a watch of a path was requested and has not lasted.
func (s *streams) isLost(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, lost := s.lost[path]
	return lost
}

// resume opens a watch of a collection from a revision.
func (f *transportFixture) resume(t *testing.T, collection string, revision int) <-chan error {
	t.Helper()
	return f.resumeWith(t.Context(), collection, revision)
}

// resumeWith does so for a cache, whose newest change is in ctx.
func (f *transportFixture) resumeWith(ctx context.Context, collection string, revision int) <-chan error {
	ended := make(chan error, 1)
	go func() {
		body, status, err := f.get(ctx, fmt.Sprintf("%s?watch=true&allowWatchBookmarks=true&resourceVersion=%d", collection, revision))
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%w: %s", verdict.StatusError(status), body)
		}
		ended <- err
	}()
	return ended
}

func wantGone(t *testing.T, ended <-chan error) {
	t.Helper()
	if err := clusterstest.Await(t, "the answer", ended); !errors.Is(err, verdict.StatusError(http.StatusGone)) {
		t.Errorf("got %v, want 410", err)
	}
}

func TestStreams_resume_what_the_member_has_reached(t *testing.T) {
	f, h, _ := newHistorian(t)
	f.resume(t, "/api/v1/nodes", 100)
	clusterstest.Await(t, "the first watch", h.watches)
	f.resume(t, "/api/v1/pods", 99)
	clusterstest.Await(t, "the second watch", h.watches)
	if asked := h.lists.Load(); asked != 1 {
		t.Errorf("the revision was read %d times for watches that come back together, want once", asked)
	}
	if err := f.transport.Cause(); err != nil {
		t.Errorf("the session broke: %v", err)
	}
}

func TestStreams_find_that_a_member_went_back(t *testing.T) {
	f, h, clk := newHistorian(t)
	f.resume(t, "/api/v1/nodes", 100)
	clusterstest.Await(t, "the watch", h.watches)
	h.revision.Store(90)
	clk.SetTime(clk.Now().Add(2 * revisionLife))
	wantGone(t, f.resume(t, "/apis/flotilla.dev/v1alpha1/redises", 95))
	if err := f.transport.Cause(); !errors.Is(err, ErrRestored) {
		t.Errorf("the session goes on: %v", err)
	}
}

func TestStreams_leave_others_alone(t *testing.T) {
	f, h, _ := newHistorian(t)
	f.resume(t, "/apis/metrics.k8s.io/v1beta1/nodes", 1000)
	clusterstest.Await(t, "the watch of an aggregated kind", h.watches)
	f.resume(t, "/api/v1/events", 1000)
	clusterstest.Await(t, "the watch of events", h.watches)
	f.resume(t, "/api/v1/nodes", 0)
	clusterstest.Await(t, "a watch from anywhere", h.watches)
	if h.lists.Load() != 0 {
		t.Error("revisions were compared that cannot be")
	}
}

func TestStreams_list_again_after_a_long_outage(t *testing.T) {
	f, h, clk := newHistorian(t)
	first := f.resume(t, "/api/v1/nodes", 100)
	clusterstest.Await(t, "the watch", h.watches)
	f.transport.OpenBreaker()
	if err := clusterstest.Await(t, "the end", first); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("got %v", err)
	}
	h.revision.Store(200)
	clk.SetTime(clk.Now().Add(longSilence + time.Second))
	parked := f.resume(t, "/api/v1/nodes", 100)
	f.transport.CloseBreaker()
	wantGone(t, parked)
	f.resume(t, "/api/v1/nodes", 200)
	clusterstest.Await(t, "the watch after the list", h.watches)

	f.resume(t, "/api/v1/pods", 200)
	clusterstest.Await(t, "the first watch of another kind", h.watches)
}

// TestStreams_silence_adds_up has a member that is never well for long enough to open a watch.
func TestStreams_silence_adds_up(t *testing.T) {
	const path = "/api/v1/nodes"
	clk := clocktesting.NewFakePassiveClock(time.Now())
	s := newStreams(clk)
	s.hear(path)
	pass := func(minutes int) bool {
		clk.SetTime(clk.Now().Add(time.Duration(minutes) * time.Minute))
		return s.silent(path)
	}
	if pass(4) {
		t.Error("listed after 4 min of silence, want a resume")
	}
	if !pass(4) {
		t.Error("resumed after 8 min of silence with an attempt in between, want a list")
	}
	if pass(4) {
		t.Error("listed again 4 min after the list, want a resume")
	}
}

// TestStreams_send_a_watch_again_that_is_never_answered has one watch get lost on its way.
func TestStreams_send_a_watch_again_that_is_never_answered(t *testing.T) {
	linkClock := clocktesting.NewFakeClock(time.Now())
	f, h, clk := newHistorianAt(t, linkClock)
	h.lost.Store(1)
	ended := f.resume(t, "/api/v1/nodes", 100)
	clusterstest.Await(t, "the watch that gets lost", h.watches)
	f.transport.Renewed(100, clk.Now().Add(time.Second))
	linkClock.Step(watchAnswerDeadline - time.Millisecond)
	if !linkClock.HasWaiters() {
		t.Fatal("the watch was given up early")
	}
	linkClock.Step(time.Millisecond)
	clusterstest.Await(t, "the wish for a probe", f.kicks)
	f.transport.GoodProbe()
	again := clusterstest.Await(t, "the watch to be sent again", h.watches)
	if revision, resumes := resumedRevision(again.URL); !resumes || revision != 100 {
		t.Errorf("sent %s, want a resume", again.URL)
	}
	clusterstest.Await(t, "the wish for a probe of a resumed watch", f.kicks)
	for linkClock.HasWaiters() {
		runtime.Gosched() // The deadline ends when the watch is open.
	}
	f.transport.EndWatches()
	// If it ends before its event is read, it lives on for a moment.
	end := make(chan error)
	go func() {
		for {
			select {
			case err := <-ended:
				end <- err
				return
			default:
				linkClock.Step(minWatchLife)
				runtime.Gosched()
			}
		}
	}()
	if err := clusterstest.Await(t, "the end", end); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("the watch ended with %v, which is no reason to resume", err)
	}
}

// TestStreams_unread_includes_what_was_parked has a watch that is never answered after an outage.
func TestStreams_unread_includes_what_was_parked(t *testing.T) {
	f, h, clk := newHistorian(t)
	f.transport.OpenBreaker()
	parked := f.resume(t, "/api/v1/nodes", 100)
	for !f.transport.streams.isLost("/api/v1/nodes") {
		runtime.Gosched() // It is not parked yet.
	}
	h.lost.Store(1)
	f.transport.CloseBreaker()
	clusterstest.Await(t, "the watch that is never answered", h.watches)
	clk.SetTime(clk.Now().Add(UnreadTime))
	if unread := f.transport.Unread(); !slices.Equal(unread, []string{"nodes"}) {
		t.Errorf("%v cannot be watched, want nodes", unread)
	}
	select {
	case err := <-parked:
		t.Errorf("the parked watch ended: %v", err)
	default:
	}
}

// TestStreams_behind_until_opened_again has a member come back with a watch that is resumed, one that is listed, one that
// is never answered, and one that could not be watched before.
func TestStreams_behind_until_opened_again(t *testing.T) {
	f, h, clk := newHistorian(t)
	for _, path := range []string{"/api/v1/nodes", "/api/v1/pods", "/api/v1/services"} {
		f.resume(t, path, 100)
		clusterstest.Await(t, "the watch", h.watches)
	}
	for f.transport.streams.reading() < 3 {
		runtime.Gosched()
	}
	f.transport.streams.tried("/api/v1/configmaps")
	f.transport.streams.hear("/api/v1/configmaps")
	clk.SetTime(clk.Now().Add(UnreadTime))
	f.transport.Renewed(100, clk.Now())
	f.transport.OpenBreaker()
	clk.SetTime(clk.Now().Add(UnreadTime))
	f.transport.CloseBreaker()
	want := func(behind, unread []string) {
		t.Helper()
		got := f.transport.Behind()
		for limit := time.Now().Add(10 * time.Second); !slices.Equal(got, behind) && time.Now().Before(limit); got = f.transport.Behind() {
			runtime.Gosched()
		}
		if !slices.Equal(got, behind) {
			t.Fatalf("%v are behind, want %v", got, behind)
		}
		if got := f.transport.Unread(); !slices.Equal(got, unread) {
			t.Fatalf("%v are unread, want %v", got, unread)
		}
	}
	want([]string{"nodes", "pods", "services"}, []string{"configmaps"})
	f.resume(t, "/api/v1/nodes", 100)
	want([]string{"pods", "services"}, []string{"configmaps"})

	listing := &trafficBody{path: "/api/v1/pods", allowance: allowance{initial: true, listing: &atomic.Int64{}, objects: &atomic.Int64{}}}
	f.transport.streams.opened(listing)
	clk.SetTime(clk.Now().Add(UnreadTime))
	want([]string{"pods"}, []string{"configmaps", "services"})
	listing.allowance.complete()
	want(nil, []string{"configmaps", "services"})
}

func TestStreams_list_when_in_doubt(t *testing.T) {
	f, h, _ := newHistorian(t)
	h.fails.Store(http.StatusInternalServerError)
	ended := f.resume(t, "/api/v1/nodes", 100)
	clusterstest.Await(t, "the wish for a probe", f.kicks)
	f.transport.GoodProbe()
	wantGone(t, ended)
	if err := f.transport.Cause(); err != nil {
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
	clusterstest.Await(t, "the watch", h.watches)
	for f.transport.streams.reading() == 0 {
		runtime.Gosched()
	}
	clk.SetTime(clk.Now().Add(StallTime - time.Second))
	if ended, _, stalled := f.transport.streams.endStalled(); ended != 0 || len(stalled) > 0 {
		t.Fatalf("ended %d watches early, %v", ended, stalled)
	}
	clk.SetTime(clk.Now().Add(time.Second))
	if ended, _, stalled := f.transport.streams.endStalled(); ended != 1 || !slices.Equal(stalled, []string{"nodes"}) {
		t.Fatalf("ended %d watches, %v; want that of nodes", ended, stalled)
	}
	if err := clusterstest.Await(t, "the end", silent); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("got %v, which is no reason to resume", err)
	}
	f.resume(t, "/api/v1/nodes", 100)
	clusterstest.Await(t, "the watch to be resumed and not to be listed again", h.watches)
	if ended, _, stalled := f.transport.streams.endStalled(); ended != 0 || !slices.Equal(stalled, []string{"nodes"}) {
		t.Errorf("a watch that is open again but silent: ended %d, %v", ended, stalled)
	}
	f.transport.streams.hear("/api/v1/nodes")
	if _, _, stalled := f.transport.streams.endStalled(); len(stalled) > 0 {
		t.Errorf("%v delivers again", stalled)
	}
}
