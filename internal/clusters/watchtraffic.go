// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"io"
	"time"
)

// trafficBody counts what a watch delivers as traffic, and limits it.
type trafficBody struct {
	io.ReadCloser
	transport *transport
	path      string
	limits    Limits
	allowance allowance
	// since is when it was opened; it belongs to streams.
	since time.Time
}

// lasts says whether a watch is past the list that it may begin with, and has been open for a while.
func (b *trafficBody) lasts(now time.Time) bool {
	return !b.allowance.isInitial() && now.Sub(b.since) >= lastingTime
}

// Read implements io.Reader.
func (b *trafficBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.transport.touch()
		b.transport.streams.hear(b.path)
		refused := b.allowance.take(p[:n])
		if refused == nil {
			refused = b.transport.flow.take(p[:n], b.limits)
		}
		if refused != nil {
			b.transport.breaks(refused)
			return 0, errAnswerTooLarge
		}
		if b.allowance.spent() {
			b.end()
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *trafficBody) Close() error {
	b.transport.streams.closed(b)
	b.allowance.complete()
	return b.ReadCloser.Close()
}

// end breaks the stream under its reader, so that it is resumed.
func (b *trafficBody) end() {
	if body, ok := b.ReadCloser.(*watchBody); ok {
		body.end()
	}
}
