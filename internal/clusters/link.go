// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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
	retired bool
}

// newLink prepares connections; nothing is dialled yet.
func newLink(c *credential, clk clock.Clock) (*link, error) {
	config, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: c.policy.control}
	transport := &http.Transport{
		// Nil proxies nothing: the environment of the manager does not decide where a member is.
		Proxy:                  http.ProxyURL(c.proxy),
		DialContext:            dialer.DialContext,
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
	return &link{credential: c, http: transport, clock: clk, limits: Limits{}.withDefaults(), watches: map[*watchBody]struct{}{}}, nil
}

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		resp, err := l.http.RoundTrip(l.address(req.Context(), req))
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusOK:
			resp.Body = l.follow(req, resp.Body)
		default:
			resp.Body = &limitedBody{ReadCloser: resp.Body, left: l.limits.AnswerBytes}
		}
		return resp, nil
	}
	deadline, limit := callDeadline, l.limits.AnswerBytes
	if isList(req) {
		deadline, limit = listDeadline, l.limits.ListBytes
	}
	ctx, cancel := context.WithTimeout(req.Context(), deadline)
	resp, err := l.http.RoundTrip(l.address(ctx, req))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &callBody{ReadCloser: &limitedBody{ReadCloser: resp.Body, left: limit}, cancel: cancel}
	return resp, nil
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

// retire ends the link without disturbing what is under way: closing its connections would fail running writes. They end
// when they are idle.
func (l *link) retire() {
	l.mu.Lock()
	l.retired = true
	l.mu.Unlock()
	l.endWatches()
	l.http.CloseIdleConnections()
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

// callBody ends the deadline of a call when its body has been read.
type callBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *callBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
