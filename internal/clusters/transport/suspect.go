// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

// SuspectTime is how long a call may be unanswered before its member is suspected.
const SuspectTime = 2 * time.Second

// errSuspected fails new and pending calls after a suspected member has failed a probe.
var errSuspected = fmt.Errorf("the member has stopped answering: %w", syscall.ECONNREFUSED)

// suspicion prevents a hanging member from blocking a worker per call until its deadline. When the network fails, many
// members may hang at once, and together they would block all workers. The first call that is not answered in time
// triggers a probe, and new calls wait for its result, because a member may be slow once. If the probe fails, the waiting
// and pending calls fail, and so do new ones until a probe succeeds. This does not change the state of the member; that
// needs several failed probes.
//
// The fields are guarded by the mutex of the transport.
type suspicion struct {
	// probed is closed when the probe has completed. It is nil while no call waits for a probe.
	probed chan struct{}
	// bad is true when the member has failed the probe.
	bad   bool
	calls map[*pendingCall]struct{}
}

// decide records the result of a probe and releases the calls that wait for it. The caller must hold the mutex of the
// transport.
func (s *suspicion) decide(bad bool) {
	s.bad = bad
	if s.probed != nil {
		close(s.probed)
		s.probed = nil
	}
}

// pendingCall is a call whose response has not been read.
type pendingCall struct {
	fail context.CancelCauseFunc
	// timer suspects the member; ends fails the call when its permission ends. Either may be nil.
	timer, ends *time.Timer
}

// send sends a call through a link. Its caller blocks until the response is read.
func (t *Transport) send(req *http.Request, l *Link) (*http.Response, error) {
	if req.Context().Value(probeKey{}) != nil {
		return l.RoundTrip(req)
	}
	ctx, fail := context.WithCancelCause(req.Context())
	c := &pendingCall{fail: fail}
	if err := t.begin(req.Context(), c, !isList(req)); err != nil {
		fail(nil)
		return refuseRequest(req, err)
	}
	permitted, err := t.withPermission(req.WithContext(ctx), c)
	if err != nil {
		t.end(c)
		return refuseRequest(req, err)
	}
	resp, err := l.RoundTrip(permitted)
	if err != nil {
		if cause := context.Cause(ctx); req.Context().Err() == nil && cause != nil {
			err = cause
		}
		t.end(c)
		return nil, err
	}
	memory := &share{turn: t.turn, end: func() { fail(errNoShare) }, time: t.shareTime}
	if body, ok := resp.Body.(*limitedBody); ok {
		body.ctx, body.share = req.Context(), memory
	}
	resp.Body = &callBody{ReadCloser: resp.Body, done: func() { t.end(c) }, share: memory}
	return resp, nil
}

// begin registers a call once it may be sent. Lists may take long and are not watched for SuspectTime.
func (t *Transport) begin(ctx context.Context, c *pendingCall, watched bool) error {
	for {
		probed, err := t.tryBegin(c, watched)
		if probed == nil {
			return err
		}
		select {
		case <-probed:
		case <-t.broken.Done():
			return ErrEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryBegin registers a call, or returns a channel to wait for before the next attempt.
func (t *Transport) tryBegin(c *pendingCall, watched bool) (<-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.suspicion.bad {
		return nil, errSuspected
	}
	if t.suspicion.probed != nil {
		return t.suspicion.probed, nil
	}
	// Before Guard there are no probes, and callers wait for this member only.
	if watched && t.guarded {
		c.timer = time.AfterFunc(SuspectTime, func() { t.suspect(c) })
	}
	t.suspicion.calls[c] = struct{}{}
	return nil, nil
}

// end removes a call.
func (t *Transport) end(c *pendingCall) {
	c.fail(nil)
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.ends != nil {
		c.ends.Stop()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.suspicion.calls, c)
}

// suspect makes new calls wait for the result of the next probe, and requests that probe.
func (t *Transport) suspect(c *pendingCall) {
	t.mu.Lock()
	_, pending := t.suspicion.calls[c]
	if pending && !t.suspicion.bad && t.suspicion.probed == nil {
		t.suspicion.probed = make(chan struct{})
	}
	t.mu.Unlock()
	if pending {
		t.Kick()
	}
}

// IsSuspected reports whether the member is suspected.
func (t *Transport) IsSuspected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.suspicion.bad || t.suspicion.probed != nil
}

// BadProbe fails the pending and waiting calls of a suspected member.
func (t *Transport) BadProbe() {
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
