// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
)

// outage has a member whose watch of Pods, at revision 100, ends because the member does not answer.
type outage struct {
	*transportFixture
	member *historian
	clock  *clocktesting.FakePassiveClock
}

// newOutage renews the claim, at revision 95, if that is to happen between the list and the outage.
func newOutage(t *testing.T, renewed bool) *outage {
	t.Helper()
	o := &outage{}
	o.transportFixture, o.member, o.clock = newHistorian(t)
	ended := o.resume(t, "/api/v1/pods", 100)
	clusterstest.Await(t, "the first watch", o.member.watches)
	clusterstest.Await(t, "the wish for a probe of a resumed watch, which is open then", o.kicks)
	if renewed {
		o.clock.SetTime(o.clock.Now().Add(time.Second))
		o.transport.Renewed(95, o.clock.Now())
	}
	o.transport.OpenBreaker()
	_ = clusterstest.Await(t, "the end of the watch", ended)
	return o
}

// over ends the outage. The claim is renewed before the watch is resumed, which shows nothing.
func (o *outage) over(t *testing.T, newest kinds.Change) <-chan error {
	t.Helper()
	o.clock.SetTime(o.clock.Now().Add(2 * revisionLife))
	o.transport.CloseBreaker()
	o.transport.Renewed(99, o.clock.Now())
	return o.resumeWith(kinds.WithNewest(t.Context(), func() kinds.Change { return newest }), "/api/v1/pods", 100)
}

// wantFrom expects a watch from a revision.
func (o *outage) wantFrom(t *testing.T, revision uint64) {
	t.Helper()
	sent := clusterstest.Await(t, "the watch", o.member.watches)
	if from, resumes := resumedRevision(sent.URL); !resumes || from != revision {
		t.Errorf("sent %s, want a resume from %d", sent.URL, revision)
	}
}

func TestHistory_resumes_from_the_last_renewal(t *testing.T) {
	o := newOutage(t, true)
	o.over(t, kinds.Change{Name: "old", Revision: 90})
	o.wantFrom(t, 95)
	if past := o.member.past.Load(); past != nil {
		t.Errorf("asked for %s, which the claim answers", past)
	}
}

func TestHistory_keeps_what_was_proven_when_a_watch_is_resumed_before_the_outage(t *testing.T) {
	f, h, clk := newHistorian(t)
	f.client = Client(f.transport.ForCache())
	ended := f.resume(t, "/api/v1/pods", 100)
	clusterstest.Await(t, "the first watch", h.watches)
	clusterstest.Await(t, "the wish for a probe of a resumed watch, which is open then", f.kicks)
	clk.SetTime(clk.Now().Add(time.Second))
	f.transport.Renewed(95, clk.Now())
	f.transport.EndWatches()
	_ = clusterstest.Await(t, "the end of the watch", ended)
	clk.SetTime(clk.Now().Add(time.Second))
	ended = f.resume(t, "/api/v1/pods", 100)
	clusterstest.Await(t, "the second watch", h.watches)
	clusterstest.Await(t, "the wish for a probe of a resumed watch, which is open then", f.kicks)
	f.transport.OpenBreaker()
	_ = clusterstest.Await(t, "the end of the second watch", ended)
	(&outage{f, h, clk}).over(t, kinds.Change{Name: "old", Revision: 90})
	(&outage{f, h, clk}).wantFrom(t, 95)
}

func TestHistory_resumes_from_the_newest_change(t *testing.T) {
	for name, test := range map[string]struct {
		change kinds.Change
		then   string
	}{
		"that is there":              {kinds.Change{Namespace: "shop", Name: "cart-0", Revision: 97}, `{"metadata":{"name":"cart-0","resourceVersion":"97"}}`},
		"that removed the object":    {kinds.Change{Namespace: "shop", Name: "cart-0", Revision: 97, Deleted: true}, ""},
		"that made it unselected":    {kinds.Change{Namespace: "shop", Name: "cart-0", Revision: 97, Deleted: true}, `{"metadata":{"name":"cart-0","resourceVersion":"97"}}`},
		"of an object of no tenant":  {kinds.Change{Name: "cart-0", Revision: 97}, `{"metadata":{"name":"cart-0","resourceVersion":"97"}}`},
		"that the watch had reached": {kinds.Change{Name: "cart-0", Revision: 100}, `{"metadata":{"name":"cart-0","resourceVersion":"100"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t, true)
			o.member.then.Store(&test.then)
			o.over(t, test.change)
			o.wantFrom(t, test.change.Revision)
			asked, path := o.member.past.Load(), "/api/v1/pods"
			if test.change.Namespace != "" {
				path = "/api/v1/namespaces/shop/pods"
			}
			if query := asked.Query(); asked.Path != path || query.Get("fieldSelector") != "metadata.name=cart-0" || query.Get("limit") != "1" {
				t.Errorf("asked for %s", asked)
			}
		})
	}
}

func TestHistory_finds_a_member_that_was_restored(t *testing.T) {
	for name, test := range map[string]struct {
		change kinds.Change
		then   string
	}{
		"to before an object was made":    {kinds.Change{Name: "cart-0", Revision: 97}, ""},
		"to before an object was changed": {kinds.Change{Name: "cart-0", Revision: 97}, `{"metadata":{"name":"cart-0","resourceVersion":"94"}}`},
		"to before an object was removed": {kinds.Change{Name: "cart-0", Revision: 97, Deleted: true}, `{"metadata":{"name":"cart-0","resourceVersion":"94"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t, true)
			o.member.then.Store(&test.then)
			wantGone(t, o.over(t, test.change))
			if err := o.transport.Cause(); !errors.Is(err, ErrRestored) {
				t.Errorf("the session goes on: %v", err)
			}
		})
	}
}

func TestHistory_lists_where_it_cannot_tell(t *testing.T) {
	t.Run("no renewal since the list", func(t *testing.T) {
		wantGone(t, newOutage(t, false).over(t, kinds.Change{}))
	})
	t.Run("the past has been compacted", func(t *testing.T) {
		o := newOutage(t, true)
		o.member.compacted.Store(true)
		wantGone(t, o.over(t, kinds.Change{Name: "cart-0", Revision: 97}))
		if err := o.transport.Cause(); err != nil {
			t.Errorf("the session broke: %v", err)
		}
	})
}

// TestHistory_a_failed_request_is_an_outage has a member restart before a probe misses it.
func TestHistory_a_failed_request_is_an_outage(t *testing.T) {
	f, h, clk := newHistorian(t)
	ended := f.resume(t, "/api/v1/pods", 100)
	clusterstest.Await(t, "the first watch", h.watches)
	clusterstest.Await(t, "the wish for a probe of a resumed watch, which is open then", f.kicks)
	f.transport.Renewed(95, clk.Now().Add(time.Second))
	h.status.Store(http.StatusServiceUnavailable)
	f.transport.EndWatches()
	_ = clusterstest.Await(t, "the end of the watch", ended)
	f.resume(t, "/api/v1/pods", 100)
	clusterstest.Await(t, "the wish for a probe", f.kicks)
	h.status.Store(0)
	f.transport.GoodProbe()
	o := &outage{transportFixture: f, member: h, clock: clk}
	o.wantFrom(t, 95)
	clusterstest.Await(t, "the wish for a probe of a resumed watch", f.kicks)
	o.transport.EndWatches()
	o.resume(t, "/api/v1/pods", 100)
	o.wantFrom(t, 100)
}

// TestTransport_a_watch_without_an_answer_goes_over_in_a_rotation has a watch wait for its answer while the credential is
// replaced.
func TestTransport_a_watch_without_an_answer_goes_over_in_a_rotation(t *testing.T) {
	f, lost, _ := newHistorian(t)
	_, h, _ := newHistorian(t)
	lost.lost.Store(1)
	f.resume(t, "/api/v1/pods", 100)
	clusterstest.Await(t, "the watch that is not answered", lost.watches)
	next, err := NewLink(credentialFor(t, clusterstest.TLSServer(t, h), "two"), clock.RealClock{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f.transport.Swap(next)
	(&outage{transportFixture: f, member: h}).wantFrom(t, 100)
}
