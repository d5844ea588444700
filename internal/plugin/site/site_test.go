// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// newSite returns a site at an API server that answers with a handler.
func newSite(t *testing.T, handler http.HandlerFunc) *site.Site {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s, err := site.New(&rest.Config{Host: server.URL}, "the hub", "choose another")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExplain_says_what_to_do(t *testing.T) {
	s := newSite(t, http.NotFound)
	resource := schema.GroupResource{Resource: "secrets"}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"unauthorized":   {apierrors.NewUnauthorized("no"), "log in again, or choose another"},
		"forbidden":      {apierrors.NewForbidden(resource, "a", errors.New("no")), "your user lacks that right there"},
		"no such kind":   {&apimeta.NoKindMatchError{}, "does not serve Flotilla's kinds"},
		"unreachable":    {&net.OpError{Op: "dial", Err: errors.New("refused")}, "cannot be reached from here"},
		"no answer":      {context.DeadlineExceeded, "cannot be reached from here"},
		"something else": {errors.New("no"), "try again when that is solved"},
	} {
		err := s.Explain("reading", test.err)
		if !strings.HasPrefix(err.Error(), "the hub: reading: ") || !strings.Contains(err.Error(), test.want) || !errors.Is(err, test.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	known := console.Faultf("do that", "known")
	for _, err := range []error{nil, known, context.Canceled} {
		if got := s.Explain("reading", err); !errors.Is(got, err) || got != nil && got.Error() != err.Error() {
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

func TestGreet_returns_version_and_clock(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" || r.UserAgent() != "kubectl-flotilla" {
			t.Errorf("%s asks for %s", r.UserAgent(), r.URL)
		}
		w.Header().Set("Date", at.Format(http.TimeFormat))
		_, _ = w.Write([]byte(`{"gitVersion": "v1.36.0"}`))
	})
	if got, err := s.Greet(t.Context()); err != nil || got.Version != "v1.36.0" || !got.At.Equal(at) {
		t.Errorf("%v, %v", got, err)
	}
	s = newSite(t, http.NotFound)
	if _, err := s.Greet(t.Context()); err == nil || !strings.Contains(err.Error(), "asking for its version: the answer is 404 Not Found") {
		t.Errorf("without a version: %v", err)
	}
}

func TestLease_is_held_while_it_is_renewed_in_time(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	lease := func(holder string, renewed time.Duration) site.Lease {
		return site.Lease{Lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(60)), RenewTime: new(metav1.NewMicroTime(now.Add(-renewed))),
		}}}
	}
	for name, test := range map[string]struct {
		lease site.Lease
		hub   string
		held  bool
	}{
		"renewed in time": {lease("hub/a", 59*time.Second), "hub", true},
		"an instance":     {lease("hub", time.Second), "hub", true},
		"not in time":     {lease("hub/a", 60*time.Second), "hub", false},
		"released":        {lease("", time.Second), "", false},
		"empty":           {site.Lease{Lease: &coordinationv1.Lease{}}, "", false},
	} {
		if hub, held := test.lease.HubID(), test.lease.HeldAt(now); hub != test.hub || held != test.held {
			t.Errorf("%s: hub %q, held %t", name, hub, held)
		}
	}
	if renewed := lease("hub", time.Minute).Renewed(); renewed == nil || !renewed.Time.Equal(now.Add(-time.Minute)) {
		t.Errorf("it was renewed at %v", renewed)
	}
	if renewed := (site.Lease{Lease: &coordinationv1.Lease{}}).Renewed(); renewed != nil {
		t.Errorf("an empty Lease was renewed at %v", renewed)
	}
}

func TestWait_distinguishes_its_timeout_from_that_of_a_request(t *testing.T) {
	if met, err := site.Wait(t.Context(), time.Minute, func(context.Context) (bool, error) { return true, nil }); !met || err != nil {
		t.Errorf("what holds at once: %t, %v", met, err)
	}
	if met, err := site.Wait(t.Context(), time.Millisecond, func(context.Context) (bool, error) { return false, nil }); met || err != nil {
		t.Errorf("what never holds: %t, %v", met, err)
	}
	hangs := func(ctx context.Context) (bool, error) {
		<-ctx.Done()
		return false, ctx.Err()
	}
	if met, err := site.Wait(t.Context(), time.Millisecond, hangs); met || err != nil {
		t.Errorf("a request that hangs until the end: %t, %v", met, err)
	}
	if met, err := site.Wait(t.Context(), time.Minute, func(context.Context) (bool, error) { return false, context.DeadlineExceeded }); met || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request with a deadline of its own: %t, %v", met, err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if met, err := site.Wait(interrupted, time.Minute, hangs); met || !errors.Is(err, context.Canceled) {
		t.Errorf("an interruption: %t, %v", met, err)
	}
}

func TestEvents_Since_includes_repeated_events(t *testing.T) {
	event := func(note string) eventsv1.Event { return eventsv1.Event{Note: note} }
	before := site.Events{"a/1": event("old")}
	fresh := site.Events{"a/1": event("old"), "a/2": event("repeated")}.Since(before)
	if len(fresh) != 1 || fresh[0].Note != "repeated" {
		t.Errorf("fresh are %v", fresh)
	}
}
