// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// errAway answers every call but watches while a member is away. It is a refused connection, because that is what
// clients take for a server that is not there.
var errAway = fmt.Errorf("the member is away: %w", syscall.ECONNREFUSED)

// errEnded answers every call once the session has ended. Whoever still holds the cluster of a member that was given up
// must not write there: it may be another hub's, or another cluster, by now.
var errEnded = errors.New("the session with the member has ended")

// probeKey marks the context of a request that goes through whatever is known about the member.
type probeKey struct{}

// asProbe marks requests that find out whether the member is there.
func asProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

// transport is the one way to a member, shared by its cache and its clients. It lasts as long as the incarnation; the
// link below it is swapped when the credential is rotated.
//
// While the member is away it is a breaker: calls fail at once, and watches are parked until the member is back, so that
// they resume where they were. Reflectors would otherwise wait up to a minute before they try again, or list again. For
// the same reason a watch that fails before the breaker opens is not handed back but sent again after the next good probe.
type transport struct {
	clock clock.PassiveClock
	// kick asks for a probe now. It does not block.
	kick func()
	// noWatchList makes reflectors list: some proxies never deliver the end of the initial events.
	noWatchList atomic.Bool
	// permit is asked before each write, however it came about; nil permits all.
	permit func(context.Context) error
	// relisted is told of each list that a cache makes although it was filled.
	relisted    func()
	lastTraffic atomic.Int64
	streams     *streams
	// broken ends when the session must end, with the reason as its cause.
	broken context.Context //nolint:containedctx // It is a signal with a cause, not the context of a call.
	breaks context.CancelCauseFunc
	// listing is how much is being read by watches that begin with a list.
	listing atomic.Int64
	// flow is what all watches have delivered of late.
	flow flow

	mu      sync.Mutex // Guards the fields below; nothing waits while holding it.
	link    *link
	guarded bool                     // Watches are held; false until the member is engaged.
	away    bool                     // The breaker is open.
	good    chan struct{}            // Closed, and replaced, when watches may be sent again.
	pages   map[string]*atomic.Int64 // How large the list of a path is so far.

	suspicion suspicion
}

// newTransport starts with the breaker closed and without holding anything.
func newTransport(l *link, clk clock.PassiveClock, kick func(), noWatchList bool) *transport {
	t := &transport{clock: clk, kick: kick, streams: newStreams(clk), link: l, good: make(chan struct{}), pages: map[string]*atomic.Int64{}}
	t.suspicion.calls = map[*pendingCall]struct{}{}
	t.flow.clock = clk
	t.noWatchList.Store(noWatchList)
	t.broken, t.breaks = context.WithCancelCause(context.Background())
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		return t.watch(req)
	}
	if t.broken.Err() != nil {
		return refuseRequest(req, errEnded)
	}
	if t.permit != nil && isWrite(req) {
		if err := t.permit(req.Context()); err != nil {
			return refuseRequest(req, err)
		}
	}
	resp, err := t.call(req)
	t.observe(resp, err)
	if err == nil && isList(req) {
		resp.Body = t.limitList(req, resp.Body)
	}
	return resp, err
}

// call sends a request through the link that is in use.
func (t *transport) call(req *http.Request) (*http.Response, error) {
	for {
		l, away, _ := t.current()
		if away && req.Context().Value(probeKey{}) == nil {
			return refuseRequest(req, errAway)
		}
		resp, err := t.send(req, l)
		switch {
		case !errors.Is(err, errRetired):
			return resp, err
		case t.broken.Err() != nil:
			return refuseRequest(req, errEnded)
		}
		// The credential was rotated this very moment.
	}
}

// cacheWay is the transport as the caches use it.
type cacheWay struct{ *transport }

// RoundTrip implements http.RoundTripper.
func (w cacheWay) RoundTrip(req *http.Request) (*http.Response, error) {
	lists := isList(req) && !req.URL.Query().Has("continue")
	if isWatch(req) {
		lists = isWatchList(req.URL.Query()) && !w.noWatchList.Load()
	}
	if lists && w.isGuarded() {
		w.relisted()
	}
	return w.transport.RoundTrip(req)
}

// isGuarded says whether failed watches are held, which begins when the caches are filled.
func (t *transport) isGuarded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guarded
}

// watch sends a watch request until it gets an answer that its reflector must see.
func (t *transport) watch(req *http.Request) (*http.Response, error) {
	t.streams.tried(req.URL.Path)
	if t.noWatchList.Load() && isWatchList(req.URL.Query()) {
		return plainResponse(req, http.StatusBadRequest, "sendInitialEvents is not used with this member"), nil
	}
	forbidden, unsure := false, false
	for {
		if t.broken.Err() != nil {
			return refuseRequest(req, errEnded)
		}
		l, away, next := t.current()
		if !away {
			resp, err := t.resume(req, l, &unsure)
			if errors.Is(err, errRetired) {
				continue
			}
			if req.Context().Err() != nil || !t.holds(resp, err, &forbidden) {
				return t.deliver(req, resp, err)
			}
			if err == nil {
				discard(resp.Body)
			}
			t.kick()
		}
		select {
		case <-next:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

// resume sends a watch, or has its reflector list again where to resume would be wrong. When that cannot be told, it is
// an error once, and then a list, which is always right.
func (t *transport) resume(req *http.Request, l *link, unsure *bool) (*http.Response, error) {
	err := t.streams.verify(req, l)
	switch {
	case err == nil:
		resp, err := l.RoundTrip(req)
		t.observe(resp, err)
		return resp, err
	case errors.Is(err, errRestored):
		t.breaks(errRestored)
	case errors.Is(err, errExpired):
	case errors.Is(err, errRetired):
		return nil, err
	case !*unsure:
		*unsure = true
		return nil, err
	}
	return expiredResponse(req), nil
}

// deliver hands a watch to its reflector. One that was opened while the breaker opened was missed there, and ends here.
func (t *transport) deliver(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if _, away, _ := t.current(); away {
		if body, ok := resp.Body.(*watchBody); ok {
			body.end()
		}
	}
	if resp.StatusCode == http.StatusOK {
		l, _, _ := t.current()
		body := &trafficBody{ReadCloser: resp.Body, transport: t, path: req.URL.Path, limits: l.limits, allowance: allowance{
			limit: l.limits.ListBytes, listing: &t.listing, initial: isWatchList(req.URL.Query()),
		}}
		t.streams.opened(body)
		if _, resumes := resumedRevision(req.URL); resumes {
			// What ended the watch before may have been a change of the cluster behind the address.
			t.kick()
		}
		resp.Body = body
	}
	return resp, nil
}

// holds says whether the outcome of a watch request is kept from its reflector until the next good probe. A 403 is held
// once: an API server that starts answers it to everyone until it has read its roles.
func (t *transport) holds(resp *http.Response, err error, forbidden *bool) bool {
	switch {
	case !t.isGuarded():
		return false
	case err != nil:
		return true
	case resp.StatusCode == http.StatusForbidden:
		first := !*forbidden
		*forbidden = true
		return first
	default:
		return resp.StatusCode == http.StatusUnauthorized || resp.StatusCode >= http.StatusInternalServerError
	}
}

// observe notes that the member gave an answer that shows that it works.
func (t *transport) observe(resp *http.Response, err error) {
	if err == nil && resp.StatusCode < http.StatusInternalServerError &&
		resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
		t.touch()
	}
}

// touch notes traffic.
func (t *transport) touch() { t.lastTraffic.Store(t.clock.Now().UnixNano()) }

// traffic is when the member was last heard of.
func (t *transport) traffic() time.Time { return time.Unix(0, t.lastTraffic.Load()) }

// current is what a request needs to know.
func (t *transport) current() (*link, bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.link, t.away, t.good
}

// guard begins to hold failed watches. Someone must probe from now on.
func (t *transport) guard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guarded = true
}

// goodProbe lets held watches try again. Parked ones stay until the breaker closes.
func (t *transport) goodProbe() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.away {
		t.suspicion.decide(false)
		t.wakeLocked()
	}
}

// openBreaker fails calls at once, parks watches, and ends the open streams: they are as dead as the rest, or will soon
// deliver what nobody may act on.
func (t *transport) openBreaker() {
	t.mu.Lock()
	t.away = true
	l := t.link
	t.mu.Unlock()
	l.endWatches()
}

// closeBreaker lets everything through again.
func (t *transport) closeBreaker() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = false
	t.suspicion.decide(false)
	t.streams.resume()
	t.wakeLocked()
}

// wakeLocked sends waiting watches on their way; mu is held.
func (t *transport) wakeLocked() {
	close(t.good)
	t.good = make(chan struct{})
}

// swap puts another credential under everything that is running. Watches of the old link end and resume on the new one;
// calls that are under way finish on the old one.
func (t *transport) swap(next *link) {
	t.mu.Lock()
	old := t.link
	t.link = next
	t.mu.Unlock()
	old.retire()
}

// close ends the transport for good.
func (t *transport) close() {
	t.breaks(context.Canceled)
	l, _, _ := t.current()
	l.retire()
}

// cause is why the session must end, or nil.
func (t *transport) cause() error {
	if cause := context.Cause(t.broken); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// httpClient returns an HTTP client. Redirects are handed back: a member does not send the credential elsewhere.
func httpClient(through http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     through,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// plainResponse answers a request without sending it.
func plainResponse(req *http.Request, status int, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}},
		Body:   io.NopCloser(strings.NewReader(text)), Request: req,
	}
}

// discard reads a little of a body that nobody wants, so that its connection can be used again.
func discard(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	_ = body.Close()
}
