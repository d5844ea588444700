// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/flotilla-dev/flotilla/internal/text"
)

// pinned passes requests to one server only. It refuses redirects: HTTP clients follow them, and client-go authenticates
// whatever request they make of it, so a server could have the credential sent anywhere.
type pinned struct {
	server *url.URL
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (p pinned) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != p.server.Scheme || req.URL.Host != p.server.Host {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &strayError{"a request is for " + host(req.URL)}
	}
	resp, err := p.next.RoundTrip(req)
	if err != nil || resp.StatusCode < http.StatusMultipleChoices || resp.StatusCode >= http.StatusBadRequest {
		return resp, err
	}
	_ = resp.Body.Close()
	to := "nowhere"
	if location, err := resp.Location(); err == nil {
		to = host(location)
	}
	return nil, &strayError{fmt.Sprintf("the server answers %d and redirects to %s", resp.StatusCode, to)}
}

// WrappedRoundTripper implements the interface of k8s.io/apimachinery/pkg/util/net.
func (p pinned) WrappedRoundTripper() http.RoundTripper { return p.next }

// host returns the server of a URL as it may be shown: a path may contain a secret.
func host(of *url.URL) string {
	const limit = 100
	return text.Clip(text.Line(of.Scheme+"://"+of.Host), limit)
}

// strayError is the error of a request that would leave the server, with the credential.
type strayError struct{ why string }

// Error implements error.
func (e *strayError) Error() string {
	return e.why + ", and redirects are not followed: the credential is for this server only"
}
