// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// flood answers everything with as much as its client reads, in lines of 64 KiB unless endless says that there is no end
// of the line.
type flood struct {
	gzip, endless bool
	// bytes is how much is sent at most; 0 has no limit.
	bytes int
	end   string
}

func (f *flood) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var out io.Writer = w
	if f.gzip && strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zipped := gzip.NewWriter(w)
		defer func() { _ = zipped.Close() }()
		out = zipped
	}
	line := []byte(strings.Repeat("x", 64<<10))
	if !f.endless {
		line[len(line)-1] = '\n'
	}
	for sent := 0; f.bytes == 0 || sent < f.bytes; sent += len(line) {
		if _, err := out.Write(line); err != nil || req.Context().Err() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, f.end)
	if isWatch(req) {
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	}
}

// limited returns a transport to a flood, with a limit of 1 MiB for answers and 4 MiB for lists.
func limited(t *testing.T, f *flood) *transportFixture {
	t.Helper()
	l, err := NewLink(credentialFor(t, clusterstest.TLSServer(t, f), "one"), clock.RealClock{}, Limits{AnswerBytes: 1 << 20, ListBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	fixture := &transportFixture{transport: New(l, clock.RealClock{}, Options{Kick: func() {}})}
	fixture.client = Client(fixture.transport)
	t.Cleanup(fixture.transport.Close)
	return fixture
}

func TestLimits_of_answers(t *testing.T) {
	const watchList = "/api/v1/nodes?watch=true&sendInitialEvents=true"
	for name, tc := range map[string]struct {
		flood  flood
		path   string
		breaks bool
	}{
		"an endless object":           {path: "/api/v1/nodes/a"},
		"a gzip bomb as an object":    {flood: flood{gzip: true}, path: "/api/v1/nodes/a"},
		"an endless list":             {path: "/api/v1/nodes", breaks: true},
		"a gzip bomb as a list":       {flood: flood{gzip: true}, path: "/api/v1/nodes", breaks: true},
		"a list at a watch":           {path: watchList, breaks: true},
		"a gzip bomb at a watch":      {flood: flood{gzip: true}, path: watchList, breaks: true},
		"an endless event of a watch": {flood: flood{endless: true}, path: "/api/v1/nodes?watch=true", breaks: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := limited(t, &tc.flood)
			if _, _, err := f.get(t.Context(), tc.path); !errors.Is(err, verdict.ErrAnswerTooLarge) {
				t.Errorf("got %v", err)
			}
			refused, broke := errors.AsType[*verdict.Refusal](f.transport.Cause())
			if broke != tc.breaks || (broke && refused.Reason != flotillav1.ReasonLimitExceeded) {
				t.Errorf("the session: %v", f.transport.Cause())
			}
			if read := f.transport.listing.Load(); read != 0 {
				t.Errorf("%d bytes are still counted as being read", read)
			}
		})
	}
}

func TestLimits_add_up_the_pages_of_a_list(t *testing.T) {
	f := limited(t, &flood{bytes: 3 << 20})
	for range 3 {
		if _, _, err := f.get(t.Context(), "/api/v1/nodes?limit=500"); err != nil {
			t.Fatalf("lists that are not too large: %v", err)
		}
	}
	if _, _, err := f.get(t.Context(), "/api/v1/nodes?limit=500&continue=x"); !errors.Is(err, verdict.ErrAnswerTooLarge) {
		t.Errorf("the second page: got %v", err)
	}
}

func TestLimits_let_a_watch_go_on_after_its_list(t *testing.T) {
	f := limited(t, &flood{bytes: 3 << 20, end: string(initialEventsEnd) + "\n"})
	for range 3 {
		go func() { _, _, _ = f.get(t.Context(), "/api/v1/nodes?watch=true&sendInitialEvents=true") }()
		deadline := time.Now().Add(time.Minute)
		for f.transport.streams.reading() == 0 || f.transport.listing.Load() > 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are counted as being read", f.transport.listing.Load())
			}
			time.Sleep(time.Millisecond)
		}
	}
	if err := f.transport.Cause(); err != nil {
		t.Error(err)
	}
}

func TestLimits_of_watches_that_go_on_and_on(t *testing.T) {
	for name, limits := range map[string]Limits{
		"bytes":  {AnswerBytes: 1 << 20, ListBytes: 4 << 20, WatchBytes: 16 << 20, WatchEvents: 1 << 40},
		"events": {AnswerBytes: 1 << 20, ListBytes: 4 << 20, WatchBytes: 1 << 40, WatchEvents: 100},
	} {
		t.Run(name, func(t *testing.T) {
			f := limited(t, &flood{})
			f.transport.link.limits = limits
			for range 10 {
				// Each stream ends when it is spent, and is opened again.
				if _, _, err := f.get(t.Context(), "/api/v1/nodes?watch=true"); err == nil {
					t.Error("a watch without end has ended")
				}
			}
			refused, broke := errors.AsType[*verdict.Refusal](f.transport.Cause())
			if !broke || refused.Reason != flotillav1.ReasonLimitExceeded {
				t.Errorf("the session goes on: %v", f.transport.Cause())
			}
		})
	}
}

func TestFlow_forgets(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	f := flow{clock: clk}
	limits := Limits{WatchEvents: 10, WatchBytes: 100}
	for range 5 {
		if refused := f.take([]byte("{}\n{}\n{}\n"), limits); refused != nil {
			t.Errorf("3 events in 5 min: %v", refused)
		}
		clk.SetTime(clk.Now().Add(watchPeriod))
	}
	if refused := f.take([]byte(strings.Repeat("\x00\x00\x00\x08k8s\x00k8s\x00", 11)), limits); refused == nil {
		t.Error("11 events in protobuf at once are let through")
	}
}

func TestAllowance_finds_the_mark_wherever_it_is_split(t *testing.T) {
	text := []byte("some event\n" + string(initialEventsEnd) + "\nanother")
	for size := 1; size <= len(text); size++ {
		listing := &atomic.Int64{}
		a := allowance{limit: 1 << 20, listing: listing, objects: &atomic.Int64{}, initial: true}
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if refused := a.take(rest[:min(size, len(rest))]); refused != nil {
				t.Fatal(refused)
			}
		}
		if a.initial || listing.Load() != 0 {
			t.Errorf("reads of %d bytes: the mark was missed", size)
		}
	}
	listing := &atomic.Int64{}
	a := allowance{limit: 1 << 20, listing: listing, objects: &atomic.Int64{}, initial: true}
	for range 100 {
		_ = a.take([]byte("k8s.io/initial-ev\n"))
	}
	if !a.initial {
		t.Error("something else was taken for the mark")
	}
}
