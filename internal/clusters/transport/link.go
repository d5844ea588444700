// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
)

const (
	dialTimeout         = 5 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	// A connection that is silent for readIdleTimeout is pinged, and closed if the ping is not answered within
	// pingTimeout: watches of an unreachable member end after 25 seconds, and pauses of 20 seconds interrupt nothing.
	readIdleTimeout = 15 * time.Second
	pingTimeout     = 10 * time.Second
	// callDeadline applies to all calls except lists, listDeadline to lists. Open watches have no deadline.
	callDeadline = 10 * time.Second
	// A member may send this much ahead of what is read, in each stream and in all of a connection. A stream that waits
	// must not keep the others from reading.
	streamAhead     = 512 << 10
	connectionAhead = 64 << 20
	listDeadline    = 60 * time.Second
)

// Link holds the connections of one credential to a member. Requests use the name of the member as host; the link
// replaces it by the real address.
type Link struct {
	credential *registration.Credential
	http       *http.Transport
	clock      clock.Clock
	limits     Limits

	mu      sync.Mutex // Guards the fields below; never held while blocking.
	watches map[*watchBody]struct{}
	conns   map[*linkConn]struct{}
	// calls is the number of requests whose bodies are not closed.
	calls int
	// retired is done when the link is retired, and retire ends it. Its end is guarded too.
	retired context.Context //nolint:containedctx // It ends watches that wait for their answer.
	retire  context.CancelFunc
}

// errRetired is returned for every request after the link was retired, and for a watch that waits for its answer then.
// Nothing has been written, so the request can be sent through another link.
var errRetired = errors.New("the credential is not in use any more")

// NewLink returns a link for a credential. It does not dial.
func NewLink(c *registration.Credential, clk clock.Clock, limits Limits) (*Link, error) {
	config, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	l := &Link{
		credential: c, clock: clk, limits: limits.WithDefaults(),
		watches: map[*watchBody]struct{}{}, conns: map[*linkConn]struct{}{},
	}
	l.retired, l.retire = context.WithCancel(context.Background())
	l.http = &http.Transport{
		// A nil URL disables proxying: the environment of the manager must not redirect connections to members.
		Proxy:                  http.ProxyURL(c.Proxy()),
		DialContext:            l.dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    tlsHandshakeTimeout,
		MaxIdleConnsPerHost:    25,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamAhead, MaxReceiveBufferPerConnection: connectionAhead,
			SendPingTimeout: readIdleTimeout, PingTimeout: pingTimeout,
		},
	}
	return l, nil
}

// dial opens and tracks a connection.
func (l *Link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: l.credential.Control}
	inner, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &linkConn{Conn: inner, link: l}
	l.mu.Lock()
	drained := l.retired.Err() != nil && l.calls == 0
	if !drained {
		l.conns[conn] = struct{}{}
	}
	l.mu.Unlock()
	if drained {
		// The request that caused this dial used another connection or was canceled.
		_ = inner.Close()
		return nil, errRetired
	}
	return conn, nil
}

// RoundTrip implements http.RoundTripper.
func (l *Link) RoundTrip(req *http.Request) (*http.Response, error) {
	if !l.begin() {
		return nil, errRetired
	}
	if isWatch(req) {
		return l.watch(req)
	}
	deadline, limit := callDeadline, l.limits.AnswerBytes
	if isList(req) {
		deadline, limit = listDeadline, l.limits.ListBytes
	}
	ctx, cancel := context.WithTimeout(req.Context(), deadline)
	done := sync.OnceFunc(func() { cancel(); l.finish() })
	resp, err := l.http.RoundTrip(l.address(ctx, req))
	if err != nil {
		done()
		return nil, err
	}
	limited := &limitedBody{ReadCloser: &callBody{ReadCloser: resp.Body, done: done}, left: limit}
	if !isList(req) {
		limited.census = newCensus(resp, false)
	}
	resp.Body = limited
	return resp, nil
}

// watch sends a watch.
func (l *Link) watch(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	stay := context.AfterFunc(l.retired, cancel)
	done := sync.OnceFunc(func() { stay(); cancel(); l.finish() })
	resp, err := AwaitAnswer(l.address(ctx, req), l.http, l.clock)
	if err != nil {
		done()
		if l.retired.Err() != nil && req.Context().Err() == nil {
			return nil, errRetired
		}
		return nil, err
	}
	// An open watch ends in its own way.
	stay()
	resp.Body = &callBody{ReadCloser: resp.Body, done: done}
	if resp.StatusCode == http.StatusOK {
		resp.Body = l.follow(req, resp.Body)
	} else {
		resp.Body = &limitedBody{ReadCloser: resp.Body, left: l.limits.AnswerBytes, census: newCensus(resp, false)}
	}
	return resp, nil
}

// begin counts a request and returns true, unless the link is retired.
func (l *Link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired.Err() != nil {
		return false
	}
	l.calls++
	return true
}

// finish counts the end of a request. The last one of a retired link closes its connections.
func (l *Link) finish() {
	l.mu.Lock()
	l.calls--
	l.mu.Unlock()
	l.hangUp()
}

// hangUp closes the connections of a retired link without pending requests. http.Transport does not do that in time: it
// treats a connection as busy until it has cleaned up after the last request, and then keeps it until the idle timeout.
func (l *Link) hangUp() {
	l.mu.Lock()
	var conns []*linkConn
	if l.retired.Err() != nil && l.calls == 0 {
		conns = slices.Collect(maps.Keys(l.conns))
	}
	l.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// address returns a copy of a request for ctx that is directed to the member's server, authenticated and identified.
func (l *Link) address(ctx context.Context, req *http.Request) *http.Request {
	out := req.Clone(ctx)
	server := l.credential.Server()
	out.URL.Scheme, out.URL.Host, out.Host = server.Scheme, server.Host, ""
	if server.Path != "" {
		if out.URL.RawPath != "" {
			out.URL.RawPath = server.EscapedPath() + out.URL.RawPath
		}
		out.URL.Path = server.Path + out.URL.Path
	}
	identify(ctx, out.Header, req.Method)
	l.credential.Authorize(out.Header)
	return out
}

// follow tracks the body of a watch.
func (l *Link) follow(req *http.Request, inner io.ReadCloser) *watchBody {
	body := newWatchBody(req, inner, l.clock, l.unfollow)
	l.mu.Lock()
	l.watches[body] = struct{}{}
	retired := l.retired.Err() != nil
	l.mu.Unlock()
	if retired {
		body.end()
	}
	return body
}

// unfollow stops tracking the body of a watch.
func (l *Link) unfollow(body *watchBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, body)
}

// endWatches ends all open watches such that their reflectors resume them.
func (l *Link) endWatches() {
	l.mu.Lock()
	bodies := make([]*watchBody, 0, len(l.watches))
	for body := range l.watches {
		bodies = append(bodies, body)
	}
	l.mu.Unlock()
	for _, body := range bodies {
		body.end()
	}
}

// Retire stops new requests and ends the watches. Pending calls finish, because closing their connections would fail
// writes; the last one closes the connections.
func (l *Link) Retire() {
	l.mu.Lock()
	l.retire()
	l.mu.Unlock()
	l.endWatches()
	l.hangUp()
}

// isWatch reports whether a request opens a watch.
func isWatch(req *http.Request) bool {
	if req.Method != http.MethodGet || !strings.Contains(req.URL.RawQuery, "watch=") {
		return false
	}
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// isWatchList reports whether a request opens a watch that starts with a list.
func isWatchList(query url.Values) bool { return query.Get("sendInitialEvents") == "true" }

// isList reports whether a request reads a collection.
func isList(req *http.Request) bool {
	if req.Method != http.MethodGet || isWatch(req) {
		return false
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return len(parts) == 1
}

// callBody calls done when the body is closed.
type callBody struct {
	io.ReadCloser
	done func()
	// share is that of the answer. Nil below the Transport.
	share *share
}

// Close implements io.Closer.
func (b *callBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// linkConn is a connection that its link tracks until it is closed.
type linkConn struct {
	net.Conn
	link *Link
}

// Close implements net.Conn.
func (c *linkConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
