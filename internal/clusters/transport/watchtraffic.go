// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"time"

	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// trafficBody is the body of a watch. It counts what is read as traffic, and limits it.
type trafficBody struct {
	io.ReadCloser
	transport *Transport
	path      string
	limits    Limits
	allowance allowance
	census    census
	share     share
	// pending is true if an event with a share is incomplete. Used by the single reader only.
	pending bool
	// since is when it was opened. It is guarded by the mutex of streams.
	since time.Time
}

// lasts reports whether a watch has completed its initial list, if any, and has been open for lastingTime.
func (b *trafficBody) lasts(now time.Time) bool {
	return !b.allowance.isInitial() && now.Sub(b.since) >= lastingTime
}

// Read implements io.Reader.
func (b *trafficBody) Read(p []byte) (int, error) {
	if !b.pending {
		// The decoder asks for more, so it has decoded what it has.
		b.share.release()
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.share.count(n)
		b.transport.touch()
		b.transport.streams.hear(b.path)
		initial := b.allowance.isInitial()
		refused, malformed := b.measure(p[:n])
		if initial && !b.allowance.isInitial() {
			b.transport.streams.history.listed(b.path)
		}
		if refused != nil {
			b.transport.breaks(refused)
			return 0, verdict.ErrAnswerTooLarge
		}
		if malformed != nil {
			return 0, malformed
		}
		if b.allowance.spent(b.limits) {
			b.end()
		}
	}
	return n, err
}

// measure counts the bytes read. It returns a refusal if the session must end, or an error if they cannot be decoded.
func (b *trafficBody) measure(p []byte) (*verdict.Refusal, error) {
	if refused := b.allowance.take(p); refused != nil {
		return refused, nil
	}
	if refused := b.transport.flow.take(p, b.limits); refused != nil {
		return refused, nil
	}
	var read tally
	switch err := b.census.scan(p, &read); {
	case errors.Is(err, errTooDeep):
		return verdict.RefuseLimit("A watch of the member delivers an event that is nested deeper than %d levels", maxDepth), nil
	case errors.Is(err, errQuantity):
		return verdict.RefuseLimit("A watch of the member delivers "+quantityProblem, maxQuantityBytes, maxExponentDigits), nil
	case err != nil:
		return nil, err
	}
	if refused := b.allowance.takeEvents(read, b.limits); refused != nil {
		return refused, nil
	}
	if b.pending = read.pending > freeCost; read.eventCost > freeCost && !b.share.acquire(b.transport.broken) {
		// The watch is resumed, and the event is sent again.
		b.end()
		return nil, io.ErrUnexpectedEOF
	}
	return nil, nil
}

// Close implements io.Closer.
func (b *trafficBody) Close() error {
	b.transport.streams.closed(b)
	b.allowance.complete()
	b.share.close()
	return b.ReadCloser.Close()
}

// end closes the stream below its reader, so that it is resumed.
func (b *trafficBody) end() {
	if body, ok := b.ReadCloser.(*watchBody); ok {
		body.end()
	}
}
