// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

const (
	// longSilence is after how long a watch is not resumed but listed again. A member that was restored from an old
	// snapshot may have passed the revision of a watch since, and would resume it as if nothing had happened.
	longSilence = 5 * time.Minute
	// stallTime is how long a watch may be silent; API servers send a bookmark about every minute.
	stallTime = 5 * time.Minute
	// unreadTime is for how long no watch of a resource lasts before that is more than bad luck, and lastingTime how long one
	// must last.
	unreadTime  = time.Minute
	lastingTime = 5 * time.Second
	// revisionLife is how long a revision that was read is good for, so that watches that come back together ask once.
	revisionLife = time.Second
)

// errRestored ends a session: the member's revisions went back, so what is cached of it may be of a history that never was.
var errRestored = errors.New("the member went back to an earlier state")

// streams decides whether a watch may be resumed. An API server accepts a watch from a revision that it has not reached
// yet, and leaves out everything up to it: no error, no event, and caches that are wrong for good. A list heals that.
type streams struct {
	clock clock.PassiveClock

	// turn holds one token for reading the revision, which guards the two fields below.
	turn     chan struct{}
	revision uint64
	readAt   time.Time

	mu sync.Mutex // Guards the fields below; nothing waits while holding it.
	// heard is when a watch was last heard of, by path.
	heard map[string]time.Time
	// open are the bodies of the watches that are being read, by path.
	open map[string]*trafficBody
	// stalled are the paths of the watches that were ended for their silence and that nothing was heard of since.
	stalled map[string]bool
	// lost is since when no watch of a path lasts.
	lost map[string]time.Time
}

// newStreams knows nothing yet.
func newStreams(clk clock.PassiveClock) *streams {
	return &streams{
		clock: clk, turn: make(chan struct{}, 1), heard: map[string]time.Time{}, open: map[string]*trafficBody{}, stalled: map[string]bool{},
		lost: map[string]time.Time{},
	}
}

// tried notes that a watch is asked for.
func (s *streams) tried(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.lost[path]; !known && isWatchedPath(path) {
		s.lost[path] = s.clock.Now()
	}
}

// opened notes that a watch is being read.
func (s *streams) opened(body *trafficBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body.since = s.clock.Now()
	s.heard[body.path], s.open[body.path] = body.since, body
}

// closed notes that a watch is not read any more.
func (s *streams) closed(body *trafficBody) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[body.path] == body {
		delete(s.open, body.path)
	}
	if body.lasts(s.clock.Now()) {
		delete(s.lost, body.path)
	}
}

// unread returns the resources that cannot be watched: for long no watch of theirs has lasted. Why does not matter, a
// refusal or an answer that makes no sense to whoever reads it.
func (s *streams) unread() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var unread []string
	for path, since := range s.lost {
		body := s.open[path]
		switch {
		case body != nil && body.lasts(now):
			delete(s.lost, path)
		case body != nil && now.Sub(body.since) >= lastingTime:
			// It is still at the list that it begins with, which takes as long as it takes.
		case now.Sub(since) >= unreadTime:
			unread = append(unread, resourceOf(path))
		}
	}
	slices.Sort(unread)
	return unread
}

// resume forgets what was lost while the member was away.
func (s *streams) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.lost)
}

// resourceOf is the resource that a path is the collection of.
func resourceOf(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// hear notes that a watch delivers.
func (s *streams) hear(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[path] = s.clock.Now()
	delete(s.stalled, path)
}

// endStalled ends the watches of which neither an event nor a bookmark was heard for too long, so that they are resumed,
// and those that have not come to the end of the list that they begin with, so that it is read in another way. It returns
// how many these were, whether some were in a list, and the resources that nothing is heard of since they were ended.
func (s *streams) endStalled() (ended int, listing bool, silent []string) {
	s.mu.Lock()
	now := s.clock.Now()
	var bodies []*trafficBody
	for path, body := range s.open {
		endless := body.allowance.isInitial() && now.Sub(body.since) >= stallTime
		if endless || now.Sub(s.heard[path]) >= stallTime {
			// The silence counts anew, because the watch is to be resumed and not to be listed again.
			s.heard[path], s.stalled[path] = now, true
			bodies = append(bodies, body)
			delete(s.open, path)
			listing = listing || endless
		}
	}
	for path := range s.stalled {
		silent = append(silent, resourceOf(path))
	}
	s.mu.Unlock()
	for _, body := range bodies {
		body.end()
	}
	slices.Sort(silent)
	return len(bodies), listing, silent
}

// silent says whether nothing was heard of a watch for too long, and counts as having heard of it: whoever asks lists.
func (s *streams) silent(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	heard, known := s.heard[path]
	s.heard[path] = now
	return known && now.Sub(heard) > longSilence
}

// verify returns nil when a watch may be sent, errExpired when its reflector must list again, errRestored when that is
// because the member went back, and another error when that cannot be told.
func (s *streams) verify(req *http.Request, through http.RoundTripper) error {
	revision, resumes := resumedRevision(req.URL)
	if !resumes {
		return nil
	}
	if s.silent(req.URL.Path) {
		return errExpired
	}
	select {
	case s.turn <- struct{}{}:
	case <-req.Context().Done():
		return req.Context().Err()
	}
	defer func() { <-s.turn }()
	if revision <= s.revision && s.clock.Since(s.readAt) < revisionLife {
		return nil
	}
	current, err := readRevision(req, through)
	if err != nil {
		return fmt.Errorf("reading the revision of the member: %w", err)
	}
	s.revision, s.readAt = current, s.clock.Now()
	if revision > current {
		return errRestored
	}
	return nil
}

// errExpired has a reflector list again.
var errExpired = errors.New("the revision is too old")

// resumedRevision is the revision that a watch starts from. Watches that begin with a list have none, because the API
// server itself refuses those from the future. Neither have kinds that may be kept elsewhere than the rest, like events
// and those of aggregated API servers: their revisions cannot be compared.
func resumedRevision(u *url.URL) (uint64, bool) {
	query := u.Query()
	if isWatchList(query) || !isWatchedPath(u.Path) {
		return 0, false
	}
	revision, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	return revision, err == nil && revision > 0
}

// isWatchedPath says whether a path is the collection of a watched kind in all namespaces.
func isWatchedPath(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group, resource := "", ""
	switch {
	case len(parts) == 3 && parts[0] == "api":
		resource = parts[2]
	case len(parts) == 4 && parts[0] == "apis":
		group, resource = parts[1], parts[3]
	}
	for _, kind := range watchedKinds() {
		if kind.group == group && kind.resource == resource {
			return true
		}
	}
	return false
}

// readRevision reads how far a member is, by a list of one object of the kind that is watched.
func readRevision(watch *http.Request, through http.RoundTripper) (uint64, error) {
	ctx, cancel := context.WithTimeout(watch.Context(), callDeadline)
	defer cancel()
	u := *watch.URL
	u.RawQuery = "limit=1"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	resp, err := through.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		discard(resp.Body)
		return 0, statusError(resp.StatusCode)
	}
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(&list); err != nil {
		return 0, errors.New("the answer is not a list")
	}
	return strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
}

// expiredResponse answers a watch with 410, so that its reflector lists again.
func expiredResponse(req *http.Request) *http.Response {
	resp := plainResponse(req, http.StatusGone,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}`)
	resp.Header.Set("Content-Type", "application/json")
	return resp
}
