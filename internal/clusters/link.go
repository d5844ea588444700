// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/utils/clock"
)

const (
	dialTimeout         = 5 * time.Second
	tlsHandshakeTimeout = 10 * time.Second
	// A connection that is silent for the first is pinged, and dropped when the answer takes longer than the second:
	// watches of a black-holed member end after 25 seconds, and pauses of 20 seconds cut nothing.
	readIdleTimeout = 15 * time.Second
	pingTimeout     = 10 * time.Second
	// callDeadline is for everything but lists, listDeadline for lists; watches have none.
	callDeadline = 10 * time.Second
	listDeadline = 60 * time.Second
)

// link is one credential's connections to a member. Requests name the member as host; the link knows where it is.
type link struct {
	credential *credential
	http       *http.Transport
	clock      clock.Clock
	limits     Limits

	mu      sync.Mutex // Guards the fields below; nothing waits while holding it.
	watches map[*watchBody]struct{}
	conns   map[*linkConn]struct{}
	// calls is how many requests are under way, until their bodies are closed.
	calls   int
	retired bool
}

// errRetired answers every request that comes to a link after it was retired. Nothing of the request was touched, so that
// it can be sent through another link.
var errRetired = errors.New("the credential is not in use any more")

// newLink prepares connections; nothing is dialled yet.
func newLink(c *credential, clk clock.Clock) (*link, error) {
	config, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	l := &link{
		credential: c, clock: clk, limits: Limits{}.withDefaults(),
		watches: map[*watchBody]struct{}{}, conns: map[*linkConn]struct{}{},
	}
	transport := &http.Transport{
		// Nil proxies nothing: the environment of the manager does not decide where a member is.
		Proxy:                  http.ProxyURL(c.proxy),
		DialContext:            l.dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    tlsHandshakeTimeout,
		MaxIdleConnsPerHost:    25,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
	h2, err := http2.ConfigureTransports(transport)
	if err != nil {
		return nil, fmt.Errorf("configuring HTTP/2: %w", err)
	}
	h2.ReadIdleTimeout = readIdleTimeout
	h2.PingTimeout = pingTimeout
	l.http = transport
	return l, nil
}

// dial makes a connection.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: l.credential.policy.control}
	inner, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &linkConn{Conn: inner, link: l}
	l.mu.Lock()
	drained := l.retired && l.calls == 0
	if !drained {
		l.conns[conn] = struct{}{}
	}
	l.mu.Unlock()
	if drained {
		// The request that it was dialled for took another one or was given up.
		_ = inner.Close()
		return nil, errRetired
	}
	return conn, nil
}

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	if !l.begin() {
		return nil, errRetired
	}
	ctx, cancel := req.Context(), func() {}
	watch, limit := isWatch(req), l.limits.AnswerBytes
	if !watch {
		deadline := callDeadline
		if isList(req) {
			deadline, limit = listDeadline, l.limits.ListBytes
		}
		ctx, cancel = context.WithTimeout(ctx, deadline)
	}
	done := sync.OnceFunc(func() { cancel(); l.finish() })
	resp, err := l.http.RoundTrip(l.address(ctx, req))
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &callBody{ReadCloser: resp.Body, done: done}
	if watch && resp.StatusCode == http.StatusOK {
		resp.Body = l.follow(req, resp.Body)
	} else {
		resp.Body = &limitedBody{ReadCloser: resp.Body, left: limit}
	}
	return resp, nil
}

// begin counts a request, unless the link is retired.
func (l *link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.retired {
		l.calls++
	}
	return !l.retired
}

// finish counts a request that is over. The last one of a retired link takes the connections with it.
func (l *link) finish() {
	l.mu.Lock()
	l.calls--
	l.mu.Unlock()
	l.hangUp()
}

// hangUp closes the connections of a link that is retired and has nothing under way. It does not leave that to the HTTP
// transport, which takes a connection for busy until it has cleaned up behind the last request, and then keeps it for as
// long as connections may be idle.
func (l *link) hangUp() {
	l.mu.Lock()
	var conns []*linkConn
	if l.retired && l.calls == 0 {
		conns = slices.Collect(maps.Keys(l.conns))
	}
	l.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// address copies a request for ctx, directs it to the member's server, authenticates it and says who asks.
func (l *link) address(ctx context.Context, req *http.Request) *http.Request {
	out := req.Clone(ctx)
	server := l.credential.server
	out.URL.Scheme, out.URL.Host, out.Host = server.Scheme, server.Host, ""
	if server.Path != "" {
		if out.URL.RawPath != "" {
			out.URL.RawPath = server.EscapedPath() + out.URL.RawPath
		}
		out.URL.Path = server.Path + out.URL.Path
	}
	identify(ctx, out.Header, req.Method)
	out.Header.Del("Authorization")
	if l.credential.kind == credentialToken {
		out.Header.Set("Authorization", "Bearer "+string(l.credential.token.reveal()))
	}
	return out
}

// follow keeps track of the body of a watch.
func (l *link) follow(req *http.Request, inner io.ReadCloser) *watchBody {
	body := newWatchBody(req, inner, l.clock, l.unfollow)
	l.mu.Lock()
	l.watches[body] = struct{}{}
	retired := l.retired
	l.mu.Unlock()
	if retired {
		body.end()
	}
	return body
}

// unfollow forgets the body of a watch.
func (l *link) unfollow(body *watchBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches, body)
}

// endWatches ends all open watches in a way that their reflectors resume.
func (l *link) endWatches() {
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

// retire ends the link without disturbing what is under way: closing its connections would fail running writes. The last
// one of them closes the connections.
func (l *link) retire() {
	l.mu.Lock()
	l.retired = true
	l.mu.Unlock()
	l.endWatches()
	l.hangUp()
}

// isWatch says whether a request opens a watch.
func isWatch(req *http.Request) bool {
	if req.Method != http.MethodGet || !strings.Contains(req.URL.RawQuery, "watch=") {
		return false
	}
	watch := req.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// isWatchList says whether a request opens a watch that begins with a list.
func isWatchList(query url.Values) bool { return query.Get("sendInitialEvents") == "true" }

// isList says whether a request reads a collection.
func isList(req *http.Request) bool {
	if req.Method != http.MethodGet {
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

// callBody ends a call when its body is closed.
type callBody struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (b *callBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// linkConn is a connection of a link, which forgets it when it is closed.
type linkConn struct {
	net.Conn
	link *link
}

// Close implements net.Conn.
func (c *linkConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
