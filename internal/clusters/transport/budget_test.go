// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

// awaitBudget waits until nothing is decoded any more of what the tests before have received.
func awaitBudget(t *testing.T) {
	t.Helper()
	if err := decodingShares.Acquire(t.Context(), decodingBudget); err != nil {
		t.Fatal(err)
	}
	decodingShares.Release(decodingBudget)
}

func TestShare_is_one_per_member(t *testing.T) {
	awaitBudget(t)
	turn := make(chan struct{}, 1)
	first, second := &share{turn: turn, time: time.Minute, end: func() {}}, &share{turn: turn, time: time.Minute, end: func() {}}
	for range 2 {
		if !first.acquire(t.Context()) {
			t.Fatal("the first got no share")
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if second.acquire(canceled) {
		t.Error("a member has two shares")
	}
	first.release()
	first.release()
	if !second.acquire(t.Context()) {
		t.Error("the share was not returned")
	}
	second.close()
	if second.acquire(t.Context()) {
		t.Error("a closed watch got a share")
	}
	if !decodingShares.TryAcquire(decodingBudget) {
		t.Fatal("the budget was not returned")
	}
	if decodingShares.Release(decodingBudget); len(turn) > 0 {
		t.Error("the turn was not returned")
	}
}

func TestShare_stays_with_an_answer_that_goes_on(t *testing.T) {
	awaitBudget(t)
	ended := 0
	one := &share{turn: make(chan struct{}, 1), time: time.Hour, end: func() { ended++ }}
	acquire := func() {
		t.Helper()
		if !one.acquire(t.Context()) {
			t.Fatal("there was no share")
		}
	}

	acquire()
	for term := 1; term < shareTerms; term++ {
		one.count(shareBytes)
		one.expire()
		if ended > 0 {
			t.Fatalf("an answer that goes on was ended in term %d", term)
		}
	}
	one.release()
	acquire()
	one.count(shareBytes - 1)
	one.expire()
	if ended != 1 {
		t.Error("an answer that hardly goes on keeps its share")
	}

	ended, one = 0, &share{turn: make(chan struct{}, 1), time: time.Hour, end: func() { ended++ }}
	acquire()
	for range shareTerms {
		one.count(shareBytes)
		one.expire()
	}
	if ended != 1 {
		t.Error("an answer that never ends keeps its share")
	}
	if !decodingShares.TryAcquire(decodingBudget) {
		t.Fatal("the budget was not returned")
	}
	decodingShares.Release(decodingBudget)
}

// dribble begins a large answer and never completes it.
type dribble struct{}

// ServeHTTP implements http.Handler.
func (dribble) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_, _ = io.WriteString(w, `{"type":"ADDED","object":{"spec":{"containers":[`+strings.Repeat("{},", 3000))
	_ = http.NewResponseController(w).Flush()
	<-req.Context().Done()
}

// shareFixture returns a transport to a member whose shares are taken away soon.
func shareFixture(t *testing.T, member http.Handler) *transportFixture {
	t.Helper()
	awaitBudget(t)
	l, err := NewLink(credentialFor(t, clusterstest.TLSServer(t, member), "one"), clock.RealClock{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f := &transportFixture{transport: New(l, clock.RealClock{}, Options{Kick: func() {}})}
	t.Cleanup(f.transport.Close)
	f.client = Client(f.transport)
	return f
}

func TestShare_is_taken_from_slow_answers(t *testing.T) {
	for _, path := range []string{"/api/v1/pods?watch=true", "/api/v1/pods", "/api/v1/pods/a"} {
		t.Run(path, func(t *testing.T) {
			f := shareFixture(t, dribble{})
			f.transport.shareTime = 10 * time.Millisecond
			if _, _, err := f.get(t.Context(), path); err == nil {
				t.Error("it was read")
			}
			if err := f.transport.Cause(); err != nil {
				t.Errorf("the session ends: %v", err)
			}
			if !decodingShares.TryAcquire(decodingBudget) {
				t.Fatal("the share was not returned")
			}
			decodingShares.Release(decodingBudget)
			if len(f.transport.turn) == 0 {
				t.Error("the member may have another share at once")
			}
		})
	}
}

// ServeHTTP implements http.Handler. It answers with as many items as the path says.
func (lists) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	items := 10
	if strings.HasSuffix(req.URL.Path, "/pods") {
		items = 1000
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_, _ = io.WriteString(w, `{"items":[`+strings.Repeat("{},", items)+`{}]}`)
}

// lists are of many Pods and few of everything else.
type lists struct{}

func TestShare_of_a_list(t *testing.T) {
	f := shareFixture(t, lists{})
	if err := decodingShares.Acquire(t.Context(), decodingBudget); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.get(t.Context(), "/api/v1/nodes"); err != nil {
		t.Errorf("a small list waits: %v", err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := f.get(impatient, "/api/v1/pods"); !errors.Is(err, errNoShare) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a large list does not wait: %v", err)
	}
	decodingShares.Release(decodingBudget)
	for range 3 {
		if _, _, err := f.get(t.Context(), "/api/v1/pods?limit=500"); err != nil {
			t.Fatalf("the next page waits for the one before: %v", err)
		}
		if decodingShares.TryAcquire(decodingBudget) {
			t.Fatal("a page has no share while it is decoded")
		}
	}
	_, _, _ = f.get(t.Context(), "/api/v1/pods?watch=true")
	if !decodingShares.TryAcquire(decodingBudget) {
		t.Fatal("the share was not returned when the list was decoded")
	}
	decodingShares.Release(decodingBudget)
}
