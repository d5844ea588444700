// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

var errNotPermitted = errors.New("not permitted")

// permits lets calls through until it is revoked, for as long as left says.
type permits struct {
	revoked atomic.Bool
	left    atomic.Int64
	asked   atomic.Int64
	// onAsk is called with the number of each question.
	onAsk func(n int64)
}

func (p *permits) permit(*http.Request) (time.Duration, error) {
	n := p.asked.Add(1)
	if p.onAsk != nil {
		p.onAsk(n)
	}
	if p.revoked.Load() {
		return 0, errNotPermitted
	}
	return time.Duration(p.left.Load()), nil
}

// permitted is a fixture whose calls last a minute.
func permitted(t *testing.T) (*transportFixture, *permits) {
	t.Helper()
	f, p := newTransportFixture(t), &permits{}
	p.left.Store(int64(time.Minute))
	f.transport.Permit = p.permit
	return f, p
}

// write sends a body and returns where its outcome goes.
func (f *transportFixture) write(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://member/api/v1/namespaces/default/pods", strings.NewReader("{}"))
		if err == nil {
			var resp *http.Response
			if resp, err = f.client.Do(req); err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		ended <- err
	}()
	return ended
}

func TestTransport_write_that_waits_for_a_probe_is_not_sent_once_its_permission_is_gone(t *testing.T) {
	f, p := permitted(t)
	came := make(chan struct{})
	p.onAsk = func(n int64) {
		if n == 4 { // After three questions about the call that is under way.
			close(came)
		}
	}
	f.api.stall.Store(true)
	before := f.call(t.Context())
	clusterstest.Await(t, "a probe to be asked for", f.kicks)
	waits := f.write(t.Context())
	clusterstest.Await(t, "the write", came)
	p.revoked.Store(true)
	f.api.stall.Store(false)
	f.transport.GoodProbe()
	if err := clusterstest.Await(t, "the write", waits); !errors.Is(err, errNotPermitted) {
		t.Errorf("the write ended with %v", err)
	}
	if err := clusterstest.Await(t, "the call under way", before); err != nil {
		t.Errorf("the call that was under way failed: %v", err)
	}
	if writes := f.api.writes.Load(); writes != 0 {
		t.Errorf("%d writes reached the member", writes)
	}
}

// A write is asked about when it comes, before it is sent, when its connection is ready and when its body is read.
func TestTransport_write_is_not_sent_whenever_its_permission_goes(t *testing.T) {
	for question := int64(1); question <= 4; question++ {
		f, p := permitted(t)
		p.onAsk = func(n int64) {
			if n == question {
				p.revoked.Store(true)
			}
		}
		if err := clusterstest.Await(t, "the write", f.write(t.Context())); !errors.Is(err, errNotPermitted) {
			t.Errorf("revoked with question %d: the write ended with %v", question, err)
		}
		if writes := f.api.writes.Load(); writes != 0 {
			t.Errorf("revoked with question %d: %d writes reached the member", question, writes)
		}
	}
}

func TestTransport_write_ends_with_its_permission(t *testing.T) {
	f, p := permitted(t)
	p.left.Store(int64(100 * time.Millisecond))
	f.api.stall.Store(true)
	if err := clusterstest.Await(t, "the write", f.write(t.Context())); !errors.Is(err, ErrPermissionEnded) {
		t.Errorf("the write ended with %v", err)
	}
	f.api.stall.Store(false)
	if err := clusterstest.Await(t, "the next write", f.write(t.Context())); err != nil {
		t.Errorf("the next write ended with %v", err)
	}
}
