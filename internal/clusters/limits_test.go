// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
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
	l, err := newLink(credentialFor(t, tlsServer(t, f), "one"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	l.limits = Limits{AnswerBytes: 1 << 20, ListBytes: 4 << 20}.withDefaults()
	fixture := &transportFixture{transport: newTransport(l, clock.RealClock{}, func() {}, false)}
	fixture.client = httpClient(fixture.transport)
	t.Cleanup(fixture.transport.close)
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
			if _, _, err := f.get(t.Context(), tc.path); !errors.Is(err, errAnswerTooLarge) {
				t.Errorf("got %v", err)
			}
			refused, broke := errors.AsType[*refusal](f.transport.cause())
			if broke != tc.breaks || (broke && refused.reason != flotillav1.ReasonLimitExceeded) {
				t.Errorf("the session: %v", f.transport.cause())
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
	if _, _, err := f.get(t.Context(), "/api/v1/nodes?limit=500&continue=x"); !errors.Is(err, errAnswerTooLarge) {
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
	if err := f.transport.cause(); err != nil {
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
			refused, broke := errors.AsType[*refusal](f.transport.cause())
			if !broke || refused.reason != flotillav1.ReasonLimitExceeded {
				t.Errorf("the session goes on: %v", f.transport.cause())
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
		a := allowance{limit: 1 << 20, listing: listing, initial: true}
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
	a := allowance{limit: 1 << 20, listing: listing, initial: true}
	for range 100 {
		_ = a.take([]byte("k8s.io/initial-ev\n"))
	}
	if !a.initial {
		t.Error("something else was taken for the mark")
	}
}

func TestFootprint(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	exceeded := make(chan error, 1)
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	f := &footprint{
		limits: Limits{CachedObjects: 10, CachedBytes: 1 << 20}, clock: clk, lifetime: t.Context(),
		exceeded: func(err error) { exceeded <- err },
	}
	transform := f.counted(toolscache.TransformFunc(trimNode))
	arrive := func(name string) {
		object, err := transform(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err == nil {
			err = store.Add(object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	recount := func() {
		for !clk.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clk.Step(recountPause)
		for f.counting.Load() {
			time.Sleep(time.Millisecond)
		}
	}
	for i := range 8 {
		arrive(fmt.Sprint(i))
	}
	if err := f.fill([]toolscache.Store{store}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		arrive("0")
	}
	recount()
	if bound := f.objects.Load(); bound != 8 || len(exceeded) > 0 {
		t.Errorf("changes were taken for objects: %d", bound)
	}
	for i := range 4 {
		arrive(fmt.Sprint("more-", i))
	}
	recount()
	if err := await(t, "the end", exceeded); err == nil || !strings.Contains(err.Error(), "LimitExceeded: The member has more than 10 objects") {
		t.Errorf("got %v", err)
	}
}

func TestFootprint_counts_bytes(t *testing.T) {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, object := range []any{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"key": strings.Repeat("x", 1<<20)}},
		&flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{"key": strings.Repeat("x", 1<<20)}}},
	} {
		if size := encodedSize(object); size < 1<<20 || size > 1<<20+1000 {
			t.Errorf("%T: %d bytes", object, size)
		}
		if err := store.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	f := &footprint{limits: Limits{CachedObjects: 10, CachedBytes: 2 << 20}}
	if err := f.fill([]toolscache.Store{store}); err == nil || !strings.Contains(err.Error(), "larger than 2 MiB") {
		t.Errorf("got %v", err)
	}
}
