// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import "net/http"

// ForCache returns the transport for the caches, which counts their relists.
func (t *Transport) ForCache() http.RoundTripper { return cacheWay{t} }

// cacheWay is the transport for the caches.
type cacheWay struct{ *Transport }

// RoundTrip implements http.RoundTripper.
func (w cacheWay) RoundTrip(req *http.Request) (*http.Response, error) {
	lists := isList(req) && !req.URL.Query().Has("continue")
	if isWatch(req) {
		lists = isWatchList(req.URL.Query()) && !w.lists.Load()
	}
	w.setListing(req.URL.Path, isList(req))
	if isList(req) {
		w.streams.history.listing(req.URL.Path)
	}
	if lists && w.isGuarded() {
		w.Relisted()
	}
	return w.Transport.RoundTrip(req)
}

// setListing records whether a cache is reading a list. A cache requests a watch once it has stored the list.
func (t *Transport) setListing(path string, listing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if listing {
		t.reading[path] = true
	} else {
		delete(t.reading, path)
	}
}

// Listing reports whether a cache is reading a list that it has not stored completely.
func (t *Transport) Listing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reading) > 0 || t.listing.Load() > 0
}
