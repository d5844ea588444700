// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// Limits bound the cost of one member. Zero fields are defaulted.
type Limits struct {
	// AnswerBytes is the maximum size of a response that is not a list, after decompression. Defaults to 10 MiB.
	AnswerBytes int64
	// ListBytes is the maximum size of a list after decompression: all its pages, or the initial events of all watches
	// whose lists are not complete yet. Defaults to 256 MiB.
	ListBytes int64
	// CachedObjects and CachedBytes limit the cache; bytes are those of the encoded objects. Default to 200,000 and 512
	// MiB.
	CachedObjects, CachedBytes int64
	// WatchEvents and WatchBytes limit what all watches of a member deliver within watchPeriod. Default to 1,000,000 and
	// 4 GiB.
	WatchEvents, WatchBytes int64
}

// WithDefaults returns the limits with zero fields defaulted.
func (l Limits) WithDefaults() Limits {
	l.AnswerBytes = cmp.Or(l.AnswerBytes, 10<<20)
	l.ListBytes = cmp.Or(l.ListBytes, 256<<20)
	l.CachedObjects = cmp.Or(l.CachedObjects, 200_000)
	l.CachedBytes = cmp.Or(l.CachedBytes, 512<<20)
	l.WatchEvents = cmp.Or(l.WatchEvents, 1_000_000)
	l.WatchBytes = cmp.Or(l.WatchBytes, 4<<30)
	return l
}

// initialEventsEnd is the annotation of the bookmark that completes the initial list of a watch.
var initialEventsEnd = []byte("k8s.io/initial-events-end")

// limitedBody is a body that fails once more than left bytes are read, or once its decoded form would need too much memory,
// which http.MaxBytesReader does not know.
type limitedBody struct {
	io.ReadCloser
	left   int64
	census census // Nil if the body is measured elsewhere.
	tally  tally
	share  *share          // Nil for a body that is small, or measured elsewhere.
	ctx    context.Context //nolint:containedctx // The context of the request that the body belongs to.
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, verdict.ErrAnswerTooLarge
	}
	if b.census == nil {
		return n, err
	}
	if b.share != nil {
		b.share.count(n)
	}
	switch scanned := b.census.scan(p[:n], &b.tally); {
	case errors.Is(scanned, errMalformed) || errors.Is(scanned, errQuantity):
		return 0, scanned
	case scanned != nil || b.tally.cost > shareCost:
		return 0, verdict.ErrAnswerTooLarge
	case b.tally.cost > freeAnswerCost && b.share != nil && !b.share.acquire(b.ctx):
		return 0, errNoShare
	}
	return n, err
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	if b.share != nil {
		b.share.received()
	}
	return b.ReadCloser.Close()
}

// listTotal is what was read of a list, in all its pages.
type listTotal struct {
	bytes, items, cost atomic.Int64
}

// limitList counts a page towards the size of its list, and ends the session when the list exceeds a limit.
func (t *Transport) limitList(req *http.Request, resp *http.Response) io.ReadCloser {
	path := req.URL.Path
	body := &listBody{ReadCloser: resp.Body, transport: t, census: newCensus(resp, false), ctx: req.Context()}
	if call, ok := resp.Body.(*callBody); ok {
		body.share = call.share
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	body.limits, body.total = t.link.limits, t.pages[path]
	if body.total == nil || !req.URL.Query().Has("continue") {
		body.total = &listTotal{}
		t.pages[path] = body.total
	}
	if isWatchedPath(path) {
		t.decoding[path] = body.share
	}
	return body
}

// decoded returns the share of the last page of a list. Its reader requests the next page, or a watch, when it has decoded
// and reduced the page.
func (t *Transport) decoded(path string) {
	t.mu.Lock()
	last := t.decoding[path]
	delete(t.decoding, path)
	t.mu.Unlock()
	if last != nil {
		last.release()
	}
}

// listBody is the body of one page of a list.
type listBody struct {
	io.ReadCloser
	transport *Transport
	total     *listTotal
	limits    Limits
	census    census
	tally     tally
	bytes     int64
	share     *share          // Nil for a probe.
	ctx       context.Context //nolint:containedctx // The context of the request that the body belongs to.
}

// Read implements io.Reader.
func (b *listBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	before := b.tally
	b.bytes += int64(n)
	if b.share != nil {
		b.share.count(n)
	}
	scanned := b.census.scan(p[:n], &b.tally)
	if errors.Is(scanned, errMalformed) {
		return 0, scanned
	}
	if refused := b.exceeds(int64(n), before, scanned, errors.Is(err, verdict.ErrAnswerTooLarge)); refused != nil {
		b.transport.breaks(refused)
		return 0, verdict.ErrAnswerTooLarge
	}
	if b.needs() > freeCost && b.share != nil && !b.share.acquire(b.ctx) {
		return 0, errNoShare
	}
	return n, err
}

// needs returns the memory that the page needs. Clients read all of it before they decode it.
func (b *listBody) needs() int64 { return b.bytes + b.tally.cost }

// exceeds counts what was read, and returns a refusal if a limit is exceeded.
func (b *listBody) exceeds(read int64, before tally, scanned error, tooLarge bool) *verdict.Refusal {
	bytes, items, cost := b.total.bytes.Add(read), b.total.items.Add(b.tally.items-before.items), b.total.cost.Add(b.tally.cost-before.cost)
	switch {
	case tooLarge || bytes > b.limits.ListBytes:
		return verdict.RefuseLimit("A list of the member is larger than %d MiB", b.limits.ListBytes>>20)
	case items > b.limits.CachedObjects:
		return verdict.RefuseLimit("A list of the member has more than %d objects", b.limits.CachedObjects)
	case cost > listCostFactor*b.limits.ListBytes:
		return verdict.RefuseLimit("A list of the member needs more than %d MiB of memory", listCostFactor*b.limits.ListBytes>>20)
	case b.needs() > shareCost:
		return verdict.RefuseLimit("A page of a list of the member needs more than %d MiB of memory", shareCost>>20)
	case errors.Is(scanned, errQuantity):
		return verdict.RefuseLimit("A list of the member has "+quantityProblem, maxQuantityBytes, maxExponentDigits)
	case scanned != nil:
		return verdict.RefuseLimit("A list of the member is nested deeper than %d levels", maxDepth)
	}
	return nil
}

// allowance limits the events of one watch. Clients buffer an event, and an initial list, until it is complete.
type allowance struct {
	limit int64
	// listing and objects count the bytes and events of all watches of the member whose initial lists are not complete.
	listing, objects *atomic.Int64

	mu sync.Mutex // Guards the fields below, because a body may be closed while it is read.
	// initial is true until the initial list is complete. own counts the bytes read from this watch; it restarts when the
	// list is complete.
	initial bool
	own     int64
	// ownObjects counts the events, and is counted in objects like own in listing.
	ownObjects int64
	// tail holds the last bytes read, which may contain the start of the mark.
	tail []byte
}

// take counts the bytes read. It returns a refusal if a limit is exceeded.
func (a *allowance) take(p []byte) *verdict.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own += int64(len(p))
	if !a.initial {
		return nil
	}
	if a.listing.Add(int64(len(p))) > a.limit {
		return verdict.RefuseLimit("The lists of the member are larger than %d MiB", a.limit>>20)
	}
	if bytes.Contains(p, initialEventsEnd) || a.straddles(p) {
		a.completeLocked()
	}
	return nil
}

// takeEvents counts the events read, complete or not. It returns a refusal if a limit is exceeded.
func (a *allowance) takeEvents(read tally, limits Limits) *verdict.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ownObjects += read.events
	switch {
	case read.eventBytes > min(maxEventBytes, a.limit):
		return verdict.RefuseLimit("A watch of the member delivers an event larger than %d MiB", min(maxEventBytes, a.limit)>>20)
	case read.eventCost > shareCost:
		return verdict.RefuseLimit("A watch of the member delivers an event that needs more than %d MiB of memory", shareCost>>20)
	case a.initial && a.objects.Add(read.events) > limits.CachedObjects+maxBookmarks:
		return verdict.RefuseLimit("The lists of the member have more than %d objects", limits.CachedObjects)
	}
	return nil
}

// straddles reports whether the mark spans the previous reads and p.
func (a *allowance) straddles(p []byte) bool {
	a.tail = append(a.tail, p[:min(len(p), len(initialEventsEnd))]...)
	found := bytes.Contains(a.tail, initialEventsEnd)
	if len(p) >= len(initialEventsEnd) {
		a.tail = append(a.tail[:0], p[len(p)-len(initialEventsEnd):]...)
	} else if extra := len(a.tail) - len(initialEventsEnd); extra > 0 {
		a.tail = append(a.tail[:0], a.tail[extra:]...)
	}
	return found
}

// complete releases the share of the list in listing. It may be called more than once.
func (a *allowance) complete() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.completeLocked()
}

// completeLocked implements complete. The caller must hold mu.
func (a *allowance) completeLocked() {
	if a.initial {
		a.listing.Add(-a.own)
		a.objects.Add(-a.ownObjects)
		a.initial, a.own, a.ownObjects, a.tail = false, 0, 0, nil
	}
}

// isInitial reports whether the initial list is incomplete.
func (a *allowance) isInitial() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.initial
}

// spent reports whether a stream has delivered so much that it should be reopened: a client may still be buffering
// something incomplete.
func (a *allowance) spent(limits Limits) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.initial && (a.own > a.limit || a.ownObjects > limits.CachedObjects)
}

// maxBookmarks is how many bookmarks there may be in the initial lists of all watches.
const maxBookmarks = 100

// watchPeriod is the period over which WatchEvents and WatchBytes are counted.
const watchPeriod = 5 * time.Minute

// flow limits what all watches of a member deliver over time. Small events need no memory, and a spent stream is resumed,
// so nothing else would stop them; but decoding them uses the CPU that all members share. The limits are several times
// what 5,000 busy nodes send. They apply to sums instead of rates, because bursts are legitimate: a rollout, or watches
// that catch up after an outage.
type flow struct {
	clock clock.PassiveClock

	mu            sync.Mutex // Guards the fields below.
	since         time.Time
	events, bytes int64
}

// take counts the bytes read. It returns a refusal if the session must end.
func (f *flow) take(p []byte, limits Limits) *verdict.Refusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.clock.Now(); now.Sub(f.since) >= watchPeriod {
		f.since, f.events, f.bytes = now, 0, 0
	}
	f.events += eventsIn(p)
	f.bytes += int64(len(p))
	switch {
	case f.events > limits.WatchEvents:
		return verdict.RefuseLimit("The watches of the member deliver more than %d events in %d min", limits.WatchEvents, int(watchPeriod.Minutes()))
	case f.bytes > limits.WatchBytes:
		return verdict.RefuseLimit("The watches of the member deliver more than %d MiB in %d min", limits.WatchBytes>>20, int(watchPeriod.Minutes()))
	}
	return nil
}

// protobufMark is the magic prefix of an event in protobuf, and of the object in it.
var protobufMark = []byte("k8s\x00")

// eventsIn estimates the number of events in p. It is at least one, so that splitting the reads does not lower it.
func eventsIn(p []byte) int64 {
	return int64(max(1, bytes.Count(p, []byte{'\n'}), bytes.Count(p, protobufMark)/2))
}
