// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// minWatchLife is how long a watch lives at least: a reflector lists again after a watch that ended within a second
// without an event.
const minWatchLife = 1100 * time.Millisecond

// watchBody is the body of a watch. Whatever ends the stream looks like a connection that broke, because then, and only
// then, a reflector resumes from where it was instead of listing again.
type watchBody struct {
	inner  io.ReadCloser
	ctx    context.Context //nolint:containedctx // The context of the request that the body belongs to.
	clock  clock.Clock
	forget func(*watchBody)
	// initial says that the stream begins with a list; its life counts from the last data then.
	initial bool

	closeOnce sync.Once
	closed    chan struct{}

	// Read by the one reader only.
	alive   time.Time
	hadData bool
}

// newWatchBody wraps the body of the response to a watch request.
func newWatchBody(req *http.Request, inner io.ReadCloser, clk clock.Clock, forget func(*watchBody)) *watchBody {
	return &watchBody{
		inner: inner, ctx: req.Context(), clock: clk, forget: forget,
		initial: isWatchList(req.URL.Query()), closed: make(chan struct{}), alive: clk.Now(),
	}
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.inner.Read(p)
	if n > 0 {
		b.hadData = true
		if b.initial {
			b.alive = b.clock.Now()
		}
	}
	if err == nil {
		return n, nil
	}
	b.outliveMinimum()
	if errors.Is(err, io.EOF) || b.ctx.Err() != nil || b.isClosed() {
		return n, err
	}
	// Exactly this value: client-go compares with ==. Others, like "client connection lost", lead to a list.
	return n, io.ErrUnexpectedEOF
}

// outliveMinimum waits until a silent stream is old enough to be resumed.
func (b *watchBody) outliveMinimum() {
	rest := minWatchLife - b.clock.Since(b.alive)
	if rest <= 0 || (b.hadData && !b.initial) {
		return
	}
	timer := b.clock.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-b.ctx.Done():
	case <-b.closed:
	}
}

// end breaks the stream under its reader.
func (b *watchBody) end() { _ = b.inner.Close() }

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.closeOnce.Do(func() { close(b.closed) })
	b.forget(b)
	return b.inner.Close()
}

// isClosed says whether the reader itself closed the body.
func (b *watchBody) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}
