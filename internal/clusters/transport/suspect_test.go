// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

// call makes a call and returns where its outcome goes.
func (f *transportFixture) call(ctx context.Context) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, _, err := f.get(ctx, "/api/v1/namespaces/default/pods/one")
		ended <- err
	}()
	return ended
}

// suspected has a call that is not answered bring the member under suspicion, and another one come after it.
func suspected(t *testing.T) (f *transportFixture, before, after <-chan error) {
	t.Helper()
	f = newTransportFixture(t)
	f.api.stall.Store(true)
	before = f.call(t.Context())
	clusterstest.Await(t, "a probe to be asked for", f.kicks)
	after = f.call(t.Context())
	select {
	case err := <-after:
		t.Fatalf("a call ended with %v before anybody knows whether the member is there", err)
	case <-time.After(200 * time.Millisecond):
	}
	return f, before, after
}

// A member that stalls for a moment, as one does whose etcd elects a leader, has done nothing wrong.
func TestTransport_calls_wait_for_the_probe_of_a_member_that_is_slow(t *testing.T) {
	f, before, after := suspected(t)
	f.api.stall.Store(false)
	f.transport.GoodProbe()
	for what, ended := range map[string]<-chan error{"the call under way": before, "the call after it": after} {
		if err := clusterstest.Await(t, what, ended); err != nil {
			t.Errorf("%s failed although the member is there: %v", what, err)
		}
	}
}

func TestTransport_calls_fail_once_the_probe_has_failed(t *testing.T) {
	f, before, after := suspected(t)
	f.transport.BadProbe()
	for what, ended := range map[string]<-chan error{
		"the call under way": before, "the call after it": after, "a call after the probe": f.call(t.Context()),
	} {
		if err := clusterstest.Await(t, what, ended); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s ended with %v, want connection refused", what, err)
		}
	}
	if sent := f.api.stalled.Load(); sent != 1 {
		t.Errorf("%d calls were sent to a member under suspicion", sent-1)
	}

	f.api.stall.Store(false)
	f.transport.GoodProbe()
	if err := clusterstest.Await(t, "a call after a good probe", f.call(t.Context())); err != nil {
		t.Errorf("a call failed after a good probe: %v", err)
	}
}

func TestTransport_call_that_waits_for_a_probe_ends_with_its_context(t *testing.T) {
	f, _, _ := suspected(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := clusterstest.Await(t, "the call", f.call(ctx)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v", err)
	}
}
