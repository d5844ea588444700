// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

// open returns the connections of a link.
func (l *Link) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

func TestLink_hangs_up_when_it_is_retired_and_its_last_call_is_done(t *testing.T) {
	g := NewWithT(t)
	f := newTransportFixture(t)
	l, _, _ := f.transport.current()
	ended, running := f.underWay(t)
	f.transport.Close()
	if err := clusterstest.Await(t, "the end of the watch", ended); err != io.ErrUnexpectedEOF { //nolint:errorlint // client-go compares so.
		t.Errorf("the watch ended with %v", err)
	}
	g.Expect(l.open()).To(Equal(1), "the call is under way")
	f.api.stall.Store(false)
	if err := clusterstest.Await(t, "the call that was under way", running); err != nil {
		t.Errorf("the call that was under way failed: %v", err)
	}
	g.Eventually(l.open).Should(BeZero())
	if _, _, err := f.get(t.Context(), "/api/v1/nodes/b"); !errors.Is(err, ErrEnded) {
		t.Errorf("a call after the end: %v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://member/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.RoundTrip(req); !errors.Is(err, errRetired) { //nolint:bodyclose // There is none.
		t.Errorf("a request to a retired link: %v", err)
	}
}

func TestLink_keeps_no_connection_that_is_made_too_late(t *testing.T) {
	f := newTransportFixture(t)
	l, _, _ := f.transport.current()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	l.Retire()
	if _, err := l.dial(t.Context(), "tcp", listener.Addr().String()); !errors.Is(err, errRetired) {
		t.Errorf("got %v", err)
	}
	if n := l.open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}
