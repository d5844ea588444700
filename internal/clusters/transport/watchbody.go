// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// A reflector lists again if a watch ends within a second without an event. minWatchLife is the minimum lifetime of one
// that resumes, and minListedLife that of one that starts with a list, after its last data: the reflector counts from the
// moment when it has stored the list, which is later on a busy machine.
const (
	minWatchLife  = 1100 * time.Millisecond
	minListedLife = 3 * time.Second
)

// watchBody is the body of a watch. Every end of the stream looks like a broken connection, because only then does a
// reflector resume instead of listing again.
type watchBody struct {
	inner  io.ReadCloser
	ctx    context.Context //nolint:containedctx // The context of the request that the body belongs to.
	clock  clock.Clock
	forget func(*watchBody)
	// initial is true if the stream starts with a list. Its lifetime then counts from the last data.
	initial bool

	closeOnce sync.Once
	closed    chan struct{}

	// Used by the single reader only.
	alive   time.Time
	hadData bool
}

// newWatchBody wraps the response body of a watch request.
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
	// client-go compares with ==. Other errors, like "client connection lost", lead to a list.
	return n, io.ErrUnexpectedEOF
}

// outliveMinimum waits until a silent stream is old enough to be resumed.
func (b *watchBody) outliveMinimum() {
	life := minWatchLife
	if b.initial {
		life = minListedLife
	}
	rest := life - b.clock.Since(b.alive)
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

// end closes the stream below its reader.
func (b *watchBody) end() { _ = b.inner.Close() }

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.closeOnce.Do(func() { close(b.closed) })
	b.forget(b)
	return b.inner.Close()
}

// isClosed reports whether the reader itself closed the body.
func (b *watchBody) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}
