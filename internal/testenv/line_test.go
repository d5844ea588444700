// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// lineTo returns a line to a server that sends each line of text back.
func lineTo(t *testing.T) *testenv.Line {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return testenv.NewLine(t, server.Addr().String())
}

func dial(line *testenv.Line, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", line.Addr(), timeout)
}

// ask says something and reads the echo until the deadline. What it says is sent whenever that is.
func ask(conn net.Conn, text string, within time.Duration) error {
	if _, err := fmt.Fprintln(conn, text); err != nil {
		return err
	}
	return hear(conn, text, within)
}

func hear(conn net.Conn, text string, within time.Duration) error {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && got != text+"\n" {
		err = fmt.Errorf("got %q, want %q", got, text)
	}
	return err
}

// timedOut reports whether nothing was heard, neither good nor bad.
func timedOut(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && network.Timeout()
}

func open(t *testing.T, line *testenv.Line) net.Conn {
	t.Helper()
	conn, err := dial(line, 10*time.Second)
	if err != nil {
		t.Fatalf("dialling a line that works: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := ask(conn, "hello", 10*time.Second); err != nil {
		t.Fatalf("asking through a line that works: %v", err)
	}
	return conn
}

func TestLine_that_drops_does_not_answer_a_dial_and_stalls_what_is_open(t *testing.T) {
	line := lineTo(t)
	conn := open(t, line)
	line.Drop(t)
	if fresh, err := dial(line, 500*time.Millisecond); !timedOut(err) {
		t.Errorf("dialling a line that drops: got %v %v, want a timeout", fresh, err)
	}
	if err := ask(conn, "anyone there?", 500*time.Millisecond); !timedOut(err) {
		t.Errorf("asking through a line that drops: got %v, want a timeout", err)
	}
	line.Restore(t)
	if err := hear(conn, "anyone there?", 10*time.Second); err != nil {
		t.Errorf("what was sent while packets were dropped does not arrive afterwards: %v", err)
	}
	open(t, line)
}

func TestLine_that_is_silent_accepts_and_delivers_later(t *testing.T) {
	line := lineTo(t)
	old := open(t, line)
	line.Hush(t)
	fresh, err := dial(line, 10*time.Second)
	if err != nil {
		t.Fatalf("dialling a silent line: %v", err)
	}
	defer func() { _ = fresh.Close() }()
	for name, conn := range map[string]net.Conn{"old": old, "fresh": fresh} {
		if err := ask(conn, name, 200*time.Millisecond); !timedOut(err) {
			t.Errorf("asking through a silent line on a %s connection: got %v, want a timeout", name, err)
		}
	}
	line.Restore(t)
	for name, conn := range map[string]net.Conn{"old": old, "fresh": fresh} {
		if err := hear(conn, name, 10*time.Second); err != nil {
			t.Errorf("what was sent during the silence on the %s connection does not arrive afterwards: %v", name, err)
		}
	}
}

func TestLine_that_refuses_is_at_the_same_address_afterwards(t *testing.T) {
	line := lineTo(t)
	conn, addr := open(t, line), line.Addr()
	line.Refuse()
	if fresh, err := dial(line, 10*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling a line that refuses: got %v %v, want a refusal", fresh, err)
	}
	if err := hear(conn, "", 10*time.Second); err == nil || timedOut(err) {
		t.Errorf("reading from a connection of a line that refuses: got %v, want its end", err)
	}
	if thief, err := net.Listen("tcp", addr); err == nil {
		_ = thief.Close()
		t.Errorf("something else listens at %s while the line refuses", addr)
	}
	line.Restore(t)
	open(t, line)
	if line.Addr() != addr {
		t.Errorf("the address of the line changed from %s to %s", addr, line.Addr())
	}
}

func TestLine_that_is_cut_takes_new_connections(t *testing.T) {
	line := lineTo(t)
	conn := open(t, line)
	line.Cut()
	if err := hear(conn, "", 10*time.Second); err == nil || timedOut(err) {
		t.Errorf("reading from a connection that was cut: got %v, want its end", err)
	}
	open(t, line)
}

func TestLine_leads_to_an_API_server(t *testing.T) {
	direct, err := url.Parse(shared.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := direct.Host
	if host == "" {
		host = shared.Config.Host
	}
	line := testenv.NewLine(t, host)
	config, err := clientcmd.RESTConfigFromKubeConfig(line.Through(t, shared.Kubeconfig()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(context.Background(), client.ObjectKey{Name: "default"}, &corev1.Namespace{}); err != nil {
		t.Errorf("reading through the line: %v", err)
	}
}
