// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// sent records what it would have sent.
type sent []string

// RoundTrip implements http.RoundTripper.
func (s *sent) RoundTrip(req *http.Request) (*http.Response, error) {
	*s = append(*s, req.URL.String())
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestPinned_passes_requests_to_one_server_only(t *testing.T) {
	seen := &sent{}
	p := pinned{server: &url.URL{Scheme: "https", Host: "eu-1.example.com:6443"}, next: seen}
	for address, passes := range map[string]bool{
		"https://eu-1.example.com:6443/version":          true,
		"https://eu-1.example.com:6443/api/v1/nodes?a=b": true,
		"http://eu-1.example.com:6443/version":           false,
		"https://eu-1.example.com/version":               false,
		"https://eu-1.example.com.evil:6443/version":     false,
		"https://169.254.169.254/latest":                 false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		*seen = nil
		if _, err := p.RoundTrip(req); passes != (err == nil) || passes != (len(*seen) == 1) {
			t.Errorf("%s: %v, and %v were sent", address, err, *seen)
		}
	}
}
