// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

// suspectTime is after how long a call without an answer brings its member under suspicion.
const suspectTime = 2 * time.Second

// errSuspected answers calls while nobody knows whether the member is there, and those that were under way when it turned
// out not to be.
var errSuspected = fmt.Errorf("the member has stopped answering: %w", syscall.ECONNREFUSED)

// suspicion keeps a member that begins to hang from holding a worker for each call until its deadline. Many members may do
// so at the same moment, when the network between fails, and together they would hold all workers that long. The first
// call that is not answered in time has a probe sent. Until that is answered other calls fail at once; when it is not,
// those under way fail too. Nothing is decided about the member by that: a few failures more do.
//
// The fields belong to the transport and are guarded by its mutex.
type suspicion struct {
	suspected bool
	calls     map[*pendingCall]struct{}
}

// pendingCall is a call whose answer has not been read.
type pendingCall struct {
	fail  context.CancelCauseFunc
	timer *time.Timer
}

// send sends a request that holds up whoever waits for its answer.
func (t *transport) send(req *http.Request, l *link) (*http.Response, error) {
	if req.Context().Value(probeKey{}) != nil {
		return l.RoundTrip(req)
	}
	ctx, fail := context.WithCancelCause(req.Context())
	c := &pendingCall{fail: fail}
	if !t.begin(c, !isList(req)) {
		fail(nil)
		return refuseRequest(req, errSuspected)
	}
	resp, err := l.RoundTrip(req.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); req.Context().Err() == nil && cause != nil {
			err = cause
		}
		t.end(c)
		return nil, err
	}
	resp.Body = &callBody{ReadCloser: resp.Body, done: func() { t.end(c) }}
	return resp, nil
}

// begin notes a call, unless none is sent now. A list may take long, so it raises no suspicion.
func (t *transport) begin(c *pendingCall, watched bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.suspicion.suspected {
		return false
	}
	// Before it is guarded nobody probes, and whoever calls waits for this member alone.
	if watched && t.guarded {
		c.timer = time.AfterFunc(suspectTime, func() { t.suspect(c) })
	}
	t.suspicion.calls[c] = struct{}{}
	return true
}

// end forgets a call.
func (t *transport) end(c *pendingCall) {
	c.fail(nil)
	if c.timer != nil {
		c.timer.Stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.suspicion.calls, c)
}

// suspect begins to fail calls until the next probe has been answered.
func (t *transport) suspect(c *pendingCall) {
	t.mu.Lock()
	_, pending := t.suspicion.calls[c]
	t.suspicion.suspected = t.suspicion.suspected || pending
	t.mu.Unlock()
	if pending {
		t.kick()
	}
}

// isSuspected says whether the member is under suspicion.
func (t *transport) isSuspected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.suspicion.suspected
}

// badProbe has the calls fail that are under way to a member under suspicion.
func (t *transport) badProbe() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.suspicion.suspected {
		return
	}
	for c := range t.suspicion.calls {
		c.fail(errSuspected)
	}
}
