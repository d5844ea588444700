// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Limits are what one member may cost. Zero fields take their defaults.
type Limits struct {
	// AnswerBytes is the largest answer to a call that is not a list, after decompression; 10 MiB.
	AnswerBytes int64
	// ListBytes is the largest list: all pages of it, or what watches that begin with a list deliver together before their
	// lists are complete, after decompression; 256 MiB.
	ListBytes int64
	// CachedObjects and CachedBytes are the most that is cached, the bytes as they would be encoded; 200,000 and 512 MiB.
	CachedObjects, CachedBytes int64
	// WatchEvents and WatchBytes are the most that the watches of a member deliver together within watchPeriod; 1,000,000
	// and 4 GiB.
	WatchEvents, WatchBytes int64
}

// withDefaults fills in what is not set.
func (l Limits) withDefaults() Limits {
	setDefault(&l.AnswerBytes, 10<<20)
	setDefault(&l.ListBytes, 256<<20)
	setDefault(&l.CachedObjects, 200_000)
	setDefault(&l.CachedBytes, 512<<20)
	setDefault(&l.WatchEvents, 1_000_000)
	setDefault(&l.WatchBytes, 4<<30)
	return l
}

// maxEventBytes is the largest event of a watch. API servers store no object of that size.
const maxEventBytes = 16 << 20

// initialEventsEnd marks the bookmark that completes the list that a watch begins with.
var initialEventsEnd = []byte("k8s.io/initial-events-end")

// errAnswerTooLarge ends the reading of an answer.
var errAnswerTooLarge = errors.New("the answer is larger than allowed")

// refuseLimit refuses a member for what it would cost.
func refuseLimit(format string, args ...any) *refusal {
	return refuseMember(flotillav1.ConditionCachesSynced, flotillav1.ReasonLimitExceeded, fmt.Sprintf(format, args...))
}

// newLink prepares connections with the limits of the pool.
func (p *Pool) newLink(c *credential) (*link, error) {
	l, err := newLink(c, p.cfg.Clock)
	if err != nil {
		return nil, err
	}
	l.limits = p.cfg.Limits
	return l, nil
}

// limitedBody fails when more is read than allowed.
type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, errAnswerTooLarge
	}
	return n, err
}

// limitList adds a page to its list, and ends the session when the list gets too large.
func (t *transport) limitList(req *http.Request, body io.ReadCloser) io.ReadCloser {
	path := req.URL.Path
	t.mu.Lock()
	defer t.mu.Unlock()
	total := t.pages[path]
	if total == nil || !req.URL.Query().Has("continue") {
		total = &atomic.Int64{}
		t.pages[path] = total
	}
	return &listBody{ReadCloser: body, transport: t, total: total, limit: t.link.limits.ListBytes}
}

// listBody is a page of a list.
type listBody struct {
	io.ReadCloser
	transport *transport
	total     *atomic.Int64
	limit     int64
}

// Read implements io.Reader.
func (b *listBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.total.Add(int64(n)) > b.limit || errors.Is(err, errAnswerTooLarge) {
		b.transport.breaks(refuseLimit("A list of the member is larger than %d MiB", b.limit>>20))
		return 0, errAnswerTooLarge
	}
	return n, err
}

// allowance limits what a watch delivers. Clients keep an event in memory until it is complete, and a list too.
type allowance struct {
	limit int64
	// listing is shared by all watches of the member whose lists are not complete.
	listing *atomic.Int64

	mu sync.Mutex // Guards the fields below, because a body may be closed while it is read.
	// initial is true until the list is complete, of which own bytes have been read.
	initial bool
	own     int64
	// event is how long the current event is at least, and tail the last bytes read, in which the mark may begin.
	event int64
	tail  []byte
}

// take counts what was read and returns why no more may be.
func (a *allowance) take(p []byte) *refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own += int64(len(p))
	if newline := bytes.LastIndexByte(p, '\n'); newline >= 0 {
		a.event = int64(len(p) - newline - 1)
	} else if a.event += int64(len(p)); a.event > min(maxEventBytes, a.limit) {
		return refuseLimit("A watch of the member delivers an event larger than %d MiB", min(maxEventBytes, a.limit)>>20)
	}
	if !a.initial {
		return nil
	}
	if a.listing.Add(int64(len(p))) > a.limit {
		return refuseLimit("The lists of the member are larger than %d MiB", a.limit>>20)
	}
	if bytes.Contains(p, initialEventsEnd) || a.straddles(p) {
		a.completeLocked()
	}
	return nil
}

// straddles says whether the mark began in what was read before.
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

// complete gives back what the list has used. It may be called more than once.
func (a *allowance) complete() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.completeLocked()
}

// completeLocked does so while mu is held.
func (a *allowance) completeLocked() {
	if a.initial {
		a.listing.Add(-a.own)
		a.initial, a.own, a.tail = false, 0, nil
	}
}

// isInitial says whether the list is not complete.
func (a *allowance) isInitial() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.initial
}

// spent says that a stream has delivered so much that it should be opened again: a client may still wait for the end of
// something.
func (a *allowance) spent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.initial && a.own > a.limit
}

// watchPeriod is the time over which the deliveries of watches are added up.
const watchPeriod = 5 * time.Minute

// flow limits what all watches of a member deliver over time. A stream of small events holds no memory, and one that is
// spent is resumed where it was, so that nothing else ends it; but to decode it takes the CPU that all members share. The
// limits are several times what 5,000 busy nodes send. They are on sums and not on rates, because a burst, like a rollout
// or watches that catch up after an outage, is none of a member's faults.
type flow struct {
	clock clock.PassiveClock

	mu            sync.Mutex // Guards the fields below.
	since         time.Time
	events, bytes int64
}

// take counts what was read and returns why the session must end.
func (f *flow) take(p []byte, limits Limits) *refusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.clock.Now(); now.Sub(f.since) >= watchPeriod {
		f.since, f.events, f.bytes = now, 0, 0
	}
	f.events += eventsIn(p)
	f.bytes += int64(len(p))
	switch {
	case f.events > limits.WatchEvents:
		return refuseLimit("The watches of the member deliver more than %d events in %d min", limits.WatchEvents, int(watchPeriod.Minutes()))
	case f.bytes > limits.WatchBytes:
		return refuseLimit("The watches of the member deliver more than %d MiB in %d min", limits.WatchBytes>>20, int(watchPeriod.Minutes()))
	}
	return nil
}

// protobufMark begins an event in protobuf, and the object in it.
var protobufMark = []byte("k8s\x00")

// eventsIn is about how many events there are in what was read, and at least one: to split them saves a member nothing.
func eventsIn(p []byte) int64 {
	return int64(max(1, bytes.Count(p, []byte{'\n'}), bytes.Count(p, protobufMark)/2))
}
