// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// history determines the revision from which a watch can be resumed after an outage. During the outage the member may have
// been restored from a snapshot, after which it assigns the same revisions to different changes. Once it has overtaken the
// revision of a watch, its API server resumes the watch, and the changes that replaced the lost ones are never delivered.
//
// A watch is therefore resumed from a revision that the member had before the outage and is proven to have still: that of
// the last renewal of the claim, which the renewal after the outage verifies, or that of the newest change in the cache,
// which is looked up in the history of the member. The revision of the watch itself proves nothing, because bookmarks
// advance it. A member that was not restored delivers nothing twice, because nothing changed between the two revisions.
type history struct {
	clock clock.PassiveClock

	mu sync.Mutex // Guards the fields below; never held while blocking.
	// renewed is the revision of the last renewal of the claim, which began at renewedAt.
	renewed   uint64
	renewedAt time.Time
	pasts     map[string]*past
}

// past is what is known about the watch of one path.
type past struct {
	// listedAt is a time at or after the completion of its last list. It is zero before the first one.
	listedAt time.Time
	// ended is true from the end of the watch until it is open again. renewed is the revision that was proven when the watch
	// ended, or 0 if none was proven after the list.
	ended   bool
	renewed uint64
	// doubtful is true if the member has failed to answer since then.
	doubtful bool
}

// newHistory returns an empty history.
func newHistory(clk clock.PassiveClock) history {
	return history{clock: clk, pasts: map[string]*past{}}
}

// prove records a renewal of the claim that began at the given time.
func (h *history) prove(revision uint64, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed, h.renewedAt = revision, began
}

// of returns the past of a path, and creates it if necessary. The caller must hold mu.
func (h *history) of(path string) *past {
	p := h.pasts[path]
	if p == nil {
		p = &past{}
		h.pasts[path] = p
	}
	return p
}

// listing records that a list begins.
func (h *history) listing(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(path).listedAt = time.Time{}
}

// listed records that the initial list of a watch is complete.
func (h *history) listed(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(path).listedAt = h.clock.Now()
}

// asked records that a watch is requested. A watch without an initial list follows a list or another watch.
func (h *history) asked(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.of(path); p.listedAt.IsZero() {
		p.listedAt = h.clock.Now()
	}
}

// opened records that a watch is open.
func (h *history) opened(path string, initial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(path)
	p.ended, p.doubtful = false, false
	if initial {
		p.listedAt = time.Time{}
	}
}

// closed records that a watch has ended.
func (h *history) closed(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(h.of(path))
}

// failed records that the member did not answer the request for a watch.
func (h *history) failed(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.of(path)
	h.end(p)
	p.doubtful = true
}

// pause records that the member does not answer.
func (h *history) pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pasts {
		h.end(p)
		p.doubtful = true
	}
}

// end records the revision that is proven at the end of the watch. Later ones may have been assigned after the outage. The
// caller must hold mu.
func (h *history) end(p *past) {
	if p.ended {
		return
	}
	p.ended, p.renewed = true, 0
	if !p.listedAt.IsZero() && h.renewedAt.After(p.listedAt) {
		p.renewed = h.renewed
	}
}

// resumable returns the revision from which a watch can be resumed, or an error of verify.
func (h *history) resumable(req *http.Request, revision uint64, through http.RoundTripper) (uint64, error) {
	h.mu.Lock()
	p := *h.of(req.URL.Path)
	h.mu.Unlock()
	if !p.doubtful {
		return revision, nil
	}
	if p.renewed == 0 {
		return 0, errExpired
	}
	newest := kinds.Newest(req.Context())
	if newest.Revision <= p.renewed {
		return min(revision, p.renewed), nil
	}
	happened, err := happened(req, newest, through)
	switch {
	case errors.Is(err, verdict.StatusError(http.StatusGone)):
		return 0, errExpired
	case err != nil:
		return 0, fmt.Errorf("reading the past of the member: %w", err)
	case !happened:
		return 0, ErrRestored
	}
	return min(revision, newest.Revision), nil
}

// happened reports whether a change that was received is part of the history of the member.
func happened(req *http.Request, change kinds.Change, through http.RoundTripper) (bool, error) {
	path := req.URL.Path
	if change.Namespace != "" {
		collection := strings.LastIndex(path, "/")
		path = path[:collection] + "/namespaces/" + change.Namespace + path[collection:]
	}
	version := strconv.FormatUint(change.Revision, 10)
	list, err := readOne(req, path, url.Values{
		"resourceVersion": {version}, "resourceVersionMatch": {"Exact"}, "fieldSelector": {"metadata.name=" + change.Name},
	}, through)
	if err != nil {
		return false, err
	}
	if len(list.Items) == 0 {
		return change.Deleted, nil
	}
	return list.Items[0].Name == change.Name && list.Items[0].ResourceVersion == version, nil
}

// resumedAt returns a copy of a watch request that starts at a revision.
func resumedAt(req *http.Request, revision uint64) *http.Request {
	query := req.URL.Query()
	version := strconv.FormatUint(revision, 10)
	if revision == 0 || query.Get("resourceVersion") == version {
		return req
	}
	query.Set("resourceVersion", version)
	req = req.Clone(req.Context())
	req.URL.RawQuery = query.Encode()
	return req
}
