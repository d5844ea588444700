// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

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

	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

const (
	// longSilence is the silence after which a watch is listed again instead of resumed. The revisions of a member that
	// was restored from an old snapshot may have overtaken that of the watch meanwhile, and it would resume as if nothing
	// had happened.
	longSilence = 5 * time.Minute
	// StallTime is how long a watch may be silent. API servers send a bookmark about every minute.
	StallTime = 5 * time.Minute
	// UnreadTime is how long every watch of a resource may fail before the resource is reported as unread. A watch has
	// failed if it is open for less than lastingTime.
	UnreadTime  = time.Minute
	lastingTime = 5 * time.Second
	// revisionLife is how long a revision that was read is reused, so that watches that resume together read it once.
	revisionLife = time.Second
)

// ErrRestored ends a session because the revisions of the member went back: the cache may hold a history that no longer
// exists.
var ErrRestored = errors.New("the member went back to an earlier state")

// streams decides whether a watch may be resumed. An API server accepts a watch from a future revision and skips all
// events up to it: without an error, the cache stays wrong forever. A list repairs that.
type streams struct {
	clock clock.PassiveClock

	// turn is a semaphore for reading the revision. It guards the two fields below.
	turn     chan struct{}
	revision uint64
	readAt   time.Time

	mu sync.Mutex // Guards the fields below; never held while blocking.
	// heard is when a watch last delivered something, by path.
	heard map[string]time.Time
	// open holds the bodies of the open watches, by path.
	open map[string]*trafficBody
	// stalled holds the paths of watches that were ended because they were silent and have not delivered since.
	stalled map[string]bool
	// lost is since when no watch of a path has lasted.
	lost map[string]time.Time
	// lagging holds the paths of watches that have not been opened since the member is back, which was at resumed.
	lagging map[string]bool
	resumed time.Time
	// hopeless holds the paths that could not be watched when the member went away.
	hopeless map[string]bool

	history history
}

// newStreams returns an empty streams.
func newStreams(clk clock.PassiveClock) *streams {
	return &streams{
		clock: clk, turn: make(chan struct{}, 1), heard: map[string]time.Time{}, open: map[string]*trafficBody{}, stalled: map[string]bool{},
		lost: map[string]time.Time{}, lagging: map[string]bool{}, history: newHistory(clk),
	}
}

// tried records that a watch is requested.
func (s *streams) tried(path string) {
	s.history.asked(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.lost[path]; !known && isWatchedPath(path) {
		s.lost[path] = s.clock.Now()
	}
}

// opened records that a watch is open.
func (s *streams) opened(body *trafficBody) {
	s.history.opened(body.path, body.allowance.isInitial())
	s.mu.Lock()
	defer s.mu.Unlock()
	body.since = s.clock.Now()
	s.heard[body.path], s.open[body.path] = body.since, body
	if !body.allowance.isInitial() {
		delete(s.lagging, body.path)
	}
}

// closed records that a watch is closed.
func (s *streams) closed(body *trafficBody) {
	s.history.closed(body.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[body.path] == body {
		delete(s.open, body.path)
	}
	// A watch from before resume may be closed after it.
	if since := s.lost[body.path]; !body.since.Before(since) && body.lasts(s.clock.Now()) {
		delete(s.lost, body.path)
	}
}

// unread returns the resources whose watches have all failed for UnreadTime, for whatever reason: a refusal, or a
// response that the client cannot decode.
func (s *streams) unread() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return resourcesOf(s.unreadLocked())
}

// unreadLocked returns the paths of the watches that are unread. The caller must hold mu.
func (s *streams) unreadLocked() map[string]bool {
	now := s.clock.Now()
	unread := map[string]bool{}
	for path, since := range s.lost {
		body := s.open[path]
		if body != nil && body.since.Before(since) {
			body = nil
		}
		switch {
		case body != nil && body.lasts(now):
			delete(s.lost, path)
		case body != nil && now.Sub(body.since) >= lastingTime:
			// Still receiving its initial list, which is not time-limited.
		case now.Sub(since) >= UnreadTime:
			unread[path] = true
		}
	}
	return unread
}

// pause records which watches are unread when the member goes away.
func (s *streams) pause() {
	s.history.pause()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hopeless = s.unreadLocked()
}

// resume marks all watches as lagging when the member is back, and gives them UnreadTime to last. Those that were unread
// before stay unread.
func (s *streams) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumed = s.clock.Now()
	for path := range s.heard {
		if isWatchedPath(path) && !s.hopeless[path] {
			s.lost[path], s.lagging[path] = s.resumed, true
		}
	}
}

// behind returns the resources whose caches may lack what happened while the member was away: their watches have been
// neither resumed nor listed since, and it is not known yet that they cannot be.
func (s *streams) behind() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread, behind := s.unreadLocked(), map[string]bool{}
	for path := range s.lagging {
		body := s.open[path]
		switch {
		case body != nil && !body.since.Before(s.resumed) && !body.allowance.isInitial():
			delete(s.lagging, path)
		case !unread[path]:
			behind[path] = true
		}
	}
	return resourcesOf(behind)
}

// resourcesOf returns the resources of the paths of collections, sorted.
func resourcesOf(paths map[string]bool) []string {
	var resources []string
	for path := range paths {
		resources = append(resources, resourceOf(path))
	}
	slices.Sort(resources)
	return resources
}

// resourceOf returns the resource of the path of a collection.
func resourceOf(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// hear records that a watch has delivered something.
func (s *streams) hear(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[path] = s.clock.Now()
	delete(s.stalled, path)
}

// endStalled ends the watches that have delivered neither an event nor a bookmark for StallTime, so that they are
// resumed, and those whose initial list is still incomplete after StallTime, so that it is read in another way. It
// returns how many it ended, whether one of them was in its initial list, and the resources that have delivered nothing
// since they were ended.
func (s *streams) endStalled() (ended int, listing bool, silent []string) {
	s.mu.Lock()
	now := s.clock.Now()
	var bodies []*trafficBody
	for path, body := range s.open {
		endless := body.allowance.isInitial() && now.Sub(body.since) >= StallTime
		if endless || now.Sub(s.heard[path]) >= StallTime {
			// Restart the silence, so that the watch is resumed and not listed again.
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

// silent reports whether a watch was silent for longer than longSilence, over however many failed attempts. It restarts
// the silence in that case, because the caller lists.
func (s *streams) silent(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	heard, known := s.heard[path]
	if !known || now.Sub(heard) <= longSilence {
		return false
	}
	s.heard[path] = now
	return true
}

// verify returns the revision from which a watch is resumed, which is 0 for one that starts with a list. It returns
// errExpired if the reflector must list again, ErrRestored if it must because the member went back, and another error if
// that is unknown.
func (s *streams) verify(req *http.Request, through http.RoundTripper) (uint64, error) {
	revision, resumes := resumedRevision(req.URL)
	if !resumes {
		return 0, nil
	}
	if s.silent(req.URL.Path) {
		return 0, errExpired
	}
	current, err := s.current(req, revision, through)
	if err != nil {
		return 0, err
	}
	if revision > current {
		return 0, ErrRestored
	}
	return s.history.resumable(req, revision, through)
}

// current returns the revision of the member, or a lower one that was read just now and is not below revision.
func (s *streams) current(req *http.Request, revision uint64, through http.RoundTripper) (uint64, error) {
	select {
	case s.turn <- struct{}{}:
	case <-req.Context().Done():
		return 0, req.Context().Err()
	}
	defer func() { <-s.turn }()
	if revision <= s.revision && s.clock.Since(s.readAt) < revisionLife {
		return s.revision, nil
	}
	current, err := ReadRevision(req, url.Values{}, through)
	if err != nil {
		return 0, fmt.Errorf("reading the revision of the member: %w", err)
	}
	s.revision, s.readAt = current, s.clock.Now()
	return current, nil
}

// errExpired makes a reflector list again.
var errExpired = errors.New("the revision is too old")

// resumedRevision returns the revision that a watch resumes from. It returns false for watches that start with a list,
// because the API server itself rejects future revisions for them, and for kinds that may be stored separately, like
// events and those of aggregated API servers: their revisions cannot be compared.
func resumedRevision(u *url.URL) (uint64, bool) {
	if !isWatchedPath(u.Path) {
		return 0, false
	}
	return ResumesFrom(u.Query())
}

// ResumesFrom returns the revision in the query of a watch. It returns false for watches that start with a list.
func ResumesFrom(query url.Values) (uint64, bool) {
	if isWatchList(query) {
		return 0, false
	}
	revision, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	return revision, err == nil && revision > 0
}

// isWatchedPath reports whether a path is the collection of a watched kind across all namespaces.
func isWatchedPath(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group, resource := "", ""
	switch {
	case len(parts) == 3 && parts[0] == "api":
		resource = parts[2]
	case len(parts) == 4 && parts[0] == "apis":
		group, resource = parts[1], parts[3]
	}
	for _, kind := range kinds.Watched() {
		if kind.Group == group && kind.Resource == resource {
			return true
		}
	}
	return false
}

// ReadRevision returns the current revision of a cluster from a list of one object of a watched kind. The query may
// restrict the list.
func ReadRevision(watch *http.Request, query url.Values, through http.RoundTripper) (uint64, error) {
	list, err := readOne(watch, watch.URL.Path, query, through)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

// readOne lists the metadata of one object on behalf of a watch.
func readOne(watch *http.Request, path string, query url.Values, through http.RoundTripper) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(watch.Context(), callDeadline)
	defer cancel()
	req := watch.Clone(ctx)
	query.Set("limit", "1")
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = path, "", query.Encode()
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	resp, err := through.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		discard(resp.Body)
		return nil, verdict.StatusError(resp.StatusCode)
	}
	list := &metav1.PartialObjectMetadataList{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, MaxAnswerBytes)).Decode(list); err != nil {
		return nil, errors.New("the answer is not a list")
	}
	return list, nil
}

// ExpiredResponse returns a 410 response to a watch, which makes its reflector list again.
func ExpiredResponse(req *http.Request) *http.Response {
	resp := plainResponse(req, http.StatusGone,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}`)
	resp.Header.Set("Content-Type", "application/json")
	return resp
}
