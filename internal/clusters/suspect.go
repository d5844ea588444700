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

// errSuspected answers calls once a member under suspicion has not answered a probe either, and those that were under way.
var errSuspected = fmt.Errorf("the member has stopped answering: %w", syscall.ECONNREFUSED)

// suspicion keeps a member that begins to hang from holding a worker for each call until its deadline. Many members may do
// so at the same moment, when the network between fails, and together they would hold all workers that long. The first
// call that is not answered in time has a probe sent, and calls wait for its outcome, because a member may just be slow
// once. When it is bad they fail, like those under way and all others until a good one. Nothing is decided about the
// member by that: a few failures more do.
//
// The fields belong to the transport and are guarded by its mutex.
type suspicion struct {
	// probed is closed when the probe has an outcome; nil while nobody waits for one.
	probed chan struct{}
	// bad says that the member did not answer the probe.
	bad   bool
	calls map[*pendingCall]struct{}
}

// decide lets those go on who wait for the outcome of the probe; the mutex of the transport is held.
func (s *suspicion) decide(bad bool) {
	s.bad = bad
	if s.probed != nil {
		close(s.probed)
		s.probed = nil
	}
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
	if err := t.begin(req.Context(), c, !isList(req)); err != nil {
		fail(nil)
		return refuseRequest(req, err)
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

// begin notes a call, once it is known that it may be sent. A list may take long, so it raises no suspicion.
func (t *transport) begin(ctx context.Context, c *pendingCall, watched bool) error {
	for {
		probed, err := t.tryBegin(c, watched)
		if probed == nil {
			return err
		}
		select {
		case <-probed:
		case <-t.broken.Done():
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryBegin notes a call, or returns what to wait for before.
func (t *transport) tryBegin(c *pendingCall, watched bool) (<-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.suspicion.bad {
		return nil, errSuspected
	}
	if t.suspicion.probed != nil {
		return t.suspicion.probed, nil
	}
	// Before it is guarded nobody probes, and whoever calls waits for this member alone.
	if watched && t.guarded {
		c.timer = time.AfterFunc(suspectTime, func() { t.suspect(c) })
	}
	t.suspicion.calls[c] = struct{}{}
	return nil, nil
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

// suspect has calls wait for the outcome of the next probe.
func (t *transport) suspect(c *pendingCall) {
	t.mu.Lock()
	_, pending := t.suspicion.calls[c]
	if pending && !t.suspicion.bad && t.suspicion.probed == nil {
		t.suspicion.probed = make(chan struct{})
	}
	t.mu.Unlock()
	if pending {
		t.kick()
	}
}

// isSuspected says whether the member is under suspicion.
func (t *transport) isSuspected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.suspicion.bad || t.suspicion.probed != nil
}

// badProbe has the calls fail that are under way to a member under suspicion, and those that wait.
func (t *transport) badProbe() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.suspicion.probed != nil {
		t.suspicion.decide(true)
	}
	if !t.suspicion.bad {
		return
	}
	for c := range t.suspicion.calls {
		c.fail(errSuspected)
	}
}
