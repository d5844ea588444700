// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

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

// MaxAnswerBytes is the maximum size of responses that are read without client-go.
const MaxAnswerBytes = 1 << 20

// ErrAway is returned for every call except watches while a member is away. It wraps ECONNREFUSED, which clients treat as
// an unavailable server.
var ErrAway = fmt.Errorf("the member is away: %w", syscall.ECONNREFUSED)

// ErrEnded is returned for every call after the session has ended. Callers that still hold the cluster of an abandoned
// member must not write: it may belong to another hub, or be another cluster, by now.
var ErrEnded = errors.New("the session with the member has ended")

// probeKey marks the context of a request that bypasses the breaker.
type probeKey struct{}

// AsProbe marks requests that check whether the member is available. They bypass the breaker and suspicion.
func AsProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

// Options configure a Transport. None of the functions may block.
type Options struct {
	// Kick requests a probe immediately.
	Kick func()
	// Permit is called before each call and may refuse it, and again when its bytes are about to be sent. left is how long
	// the call may take; zero sets no limit. Nil permits all calls.
	Permit func(*http.Request) (left time.Duration, err error)
	// Relisted is called for each list that a cache makes after it was filled.
	Relisted func()
	// NoWatchList makes reflectors list instead of using watch-list: some proxies never deliver the end of the initial
	// events.
	NoWatchList bool
}

// Transport is the HTTP transport to a member, shared by its cache and its clients. It lives as long as the incarnation;
// a rotation of the credential swaps the link below it.
//
// While the member is away, it acts as a circuit breaker: calls fail immediately, and watches are parked until the member
// is back, so that they resume where they were. Reflectors would otherwise back off for up to a minute, or list again.
// For the same reason a watch that fails before the breaker opens is not returned but sent again after the next
// successful probe.
type Transport struct {
	Options

	clock clock.PassiveClock
	// lists makes reflectors list, like NoWatchList, but can be set later.
	lists       atomic.Bool
	lastTraffic atomic.Int64
	streams     *streams
	// broken is canceled when the session must end; its cause is the reason.
	broken context.Context //nolint:containedctx // It is a signal with a cause, not the context of a call.
	breaks context.CancelCauseFunc
	// listing and objects count the bytes and events of watches whose initial lists are not complete.
	listing, objects atomic.Int64
	// turn is of the watch that receives or decodes a large event.
	turn      chan struct{}
	shareTime time.Duration
	// flow counts what all watches have delivered in the current period.
	flow flow

	mu      sync.Mutex // Guards the fields below; never held while blocking.
	link    *Link
	guarded bool                  // Failed watches are held. False until the member is engaged.
	away    bool                  // The breaker is open.
	good    chan struct{}         // Closed and replaced when watches may be sent again.
	pages   map[string]*listTotal // What was read so far of the list of a path.
	// decoding is the share of the last page of the list of a path.
	decoding map[string]*share
	// reading holds the paths that a cache lists.
	reading map[string]bool

	suspicion suspicion
}

// New returns a Transport with a closed breaker that does not hold failed watches.
func New(l *Link, clk clock.PassiveClock, options Options) *Transport {
	t := &Transport{Options: options, clock: clk, streams: newStreams(clk), link: l, good: make(chan struct{}), pages: map[string]*listTotal{}, decoding: map[string]*share{}, reading: map[string]bool{}, turn: make(chan struct{}, 1), shareTime: shareTime}
	t.suspicion.calls = map[*pendingCall]struct{}{}
	t.flow.clock = clk
	t.lists.Store(options.NoWatchList)
	t.broken, t.breaks = context.WithCancelCause(context.Background())
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		return t.watch(req)
	}
	if t.broken.Err() != nil {
		return refuseRequest(req, ErrEnded)
	}
	if _, err := t.permit(req); err != nil {
		return refuseRequest(req, err)
	}
	if isList(req) {
		t.decoded(req.URL.Path)
	}
	resp, err := t.call(req)
	t.observe(resp, err)
	if err == nil && isList(req) {
		resp.Body = t.limitList(req, resp)
	}
	return resp, err
}

// call sends a request through the current link.
func (t *Transport) call(req *http.Request) (*http.Response, error) {
	for {
		l, away, _ := t.current()
		if away && req.Context().Value(probeKey{}) == nil {
			return refuseRequest(req, ErrAway)
		}
		resp, err := t.send(req, l)
		switch {
		case !errors.Is(err, errRetired):
			return resp, err
		case t.broken.Err() != nil:
			return refuseRequest(req, ErrEnded)
		}
		// The credential has just been rotated; use the next link.
	}
}

// isGuarded reports whether failed watches are held, which begins when the caches are filled.
func (t *Transport) isGuarded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guarded
}

// watch sends a watch request until there is a response that its reflector must see.
func (t *Transport) watch(req *http.Request) (*http.Response, error) {
	t.streams.tried(req.URL.Path)
	t.decoded(req.URL.Path)
	if t.lists.Load() && isWatchList(req.URL.Query()) {
		return plainResponse(req, http.StatusBadRequest, "sendInitialEvents is not used with this member"), nil
	}
	forbidden, unsure := false, false
	for {
		if t.broken.Err() != nil {
			return refuseRequest(req, ErrEnded)
		}
		l, away, next := t.current()
		if !away {
			// CloseBreaker forgets what was tried before.
			t.streams.tried(req.URL.Path)
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
			t.lost(req, l)
			t.Kick()
		}
		select {
		case <-next:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

// lost records that a watch request was not answered. One that was lost with its link says nothing about the member.
func (t *Transport) lost(req *http.Request, l *Link) {
	if current, _, _ := t.current(); current == l {
		t.streams.history.failed(req.URL.Path)
	}
}

// resume sends a watch, or makes its reflector list again if resuming would be wrong. If that is unknown, it returns the
// error once, and then forces a list, which is always correct.
func (t *Transport) resume(req *http.Request, l *Link, unsure *bool) (*http.Response, error) {
	revision, err := t.streams.verify(req, l)
	switch {
	case err == nil:
		resp, err := l.RoundTrip(resumedAt(req, revision))
		t.observe(resp, err)
		return resp, err
	case errors.Is(err, ErrRestored):
		t.breaks(ErrRestored)
	case errors.Is(err, errExpired):
	case errors.Is(err, errRetired):
		return nil, err
	case !*unsure:
		*unsure = true
		return nil, err
	}
	return ExpiredResponse(req), nil
}

// deliver returns a watch to its reflector. OpenBreaker misses a watch that is opened at the same time; it is ended here.
func (t *Transport) deliver(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
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
		body := &trafficBody{ReadCloser: resp.Body, transport: t, path: req.URL.Path, limits: l.limits, census: newCensus(resp, true), allowance: allowance{
			limit: l.limits.ListBytes, listing: &t.listing, objects: &t.objects, initial: isWatchList(req.URL.Query()),
		}}
		body.share = share{turn: t.turn, end: body.end, time: t.shareTime}
		t.streams.opened(body)
		if _, resumes := resumedRevision(req.URL); resumes {
			// The previous watch may have ended because the cluster behind the address changed.
			t.Kick()
		}
		resp.Body = body
	}
	return resp, nil
}

// holds reports whether the result of a watch request is withheld from its reflector until the next successful probe. A
// 403 is withheld once: a starting API server returns it for every request until it has loaded its roles.
func (t *Transport) holds(resp *http.Response, err error, forbidden *bool) bool {
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

// observe records traffic if a response shows that the member works.
func (t *Transport) observe(resp *http.Response, err error) {
	if err == nil && resp.StatusCode < http.StatusInternalServerError &&
		resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
		t.touch()
	}
}

// touch records traffic.
func (t *Transport) touch() { t.lastTraffic.Store(t.clock.Now().UnixNano()) }

// LastTraffic returns when the member was last heard from.
func (t *Transport) LastTraffic() time.Time { return time.Unix(0, t.lastTraffic.Load()) }

// current returns the link, whether the breaker is open, and the channel that is closed when watches may be sent again.
func (t *Transport) current() (*Link, bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.link, t.away, t.good
}

// Broken returns a context that is canceled when the session must end. Cause returns the reason.
func (t *Transport) Broken() context.Context { return t.broken }

// Break ends the session with a reason.
func (t *Transport) Break(cause error) { t.breaks(cause) }

// UseLists makes reflectors list from now on, because watch-lists do not complete.
func (t *Transport) UseLists() { t.lists.Store(true) }

// EndStalled ends silent watches. It returns how many it ended, whether one of them was in its initial list, and the
// resources that have delivered nothing since their watches were ended.
func (t *Transport) EndStalled() (ended int, listing bool, silent []string) {
	return t.streams.endStalled()
}

// Unread returns the resources whose watches have failed for too long although the member answers.
func (t *Transport) Unread() []string { return t.streams.unread() }

// Renewed records that the claim in the member has been renewed, which began at a time. The claim has a revision since.
func (t *Transport) Renewed(revision uint64, began time.Time) {
	t.streams.history.prove(revision, began)
}

// Behind returns the resources whose watches have been neither resumed nor listed since CloseBreaker, except those that
// are unread.
func (t *Transport) Behind() []string { return t.streams.behind() }

// Guard starts holding failed watches. The caller must probe from now on.
func (t *Transport) Guard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guarded = true
}

// GoodProbe retries held watches. Parked ones wait until the breaker closes.
func (t *Transport) GoodProbe() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.away {
		t.suspicion.decide(false)
		t.wakeLocked()
	}
}

// OpenBreaker fails calls immediately, parks watches, and ends the open ones: they are dead too, or would deliver events
// that must not be acted on.
func (t *Transport) OpenBreaker() {
	t.streams.pause()
	t.mu.Lock()
	t.away = true
	t.mu.Unlock()
	t.EndWatches()
}

// EndWatches ends all open watches such that their reflectors resume them.
func (t *Transport) EndWatches() {
	l, _, _ := t.current()
	l.endWatches()
}

// CloseBreaker lets all requests through again.
func (t *Transport) CloseBreaker() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = false
	t.suspicion.decide(false)
	t.streams.resume()
	t.wakeLocked()
}

// wakeLocked releases waiting watches. The caller must hold mu.
func (t *Transport) wakeLocked() {
	close(t.good)
	t.good = make(chan struct{})
}

// Swap replaces the link. Watches of the old link end and resume on the new one; pending calls finish on the old one.
func (t *Transport) Swap(next *Link) {
	t.mu.Lock()
	old := t.link
	t.link = next
	t.mu.Unlock()
	old.Retire()
}

// Close ends the session and retires the link.
func (t *Transport) Close() {
	t.breaks(context.Canceled)
	l, _, _ := t.current()
	l.Retire()
}

// Cause returns why the session must end, or nil.
func (t *Transport) Cause() error {
	if cause := context.Cause(t.broken); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// Client returns an HTTP client. It does not follow redirects, so that a member cannot send the credential elsewhere.
func Client(through http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     through,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refuseRequest returns err for a request that is not sent.
func refuseRequest(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}

// plainResponse returns a response for a request that is not sent.
func plainResponse(req *http.Request, status int, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}},
		Body:   io.NopCloser(strings.NewReader(text)), Request: req,
	}
}

// discard drains a little of an unused body, so that its connection can be reused.
func discard(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10)
	_ = body.Close()
}
