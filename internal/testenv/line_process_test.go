// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"net"
	"os"
	"testing"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

func TestLine_tells_processes(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	line := testenv.NewLine(t, server.Addr().String())
	from := func() int {
		t.Helper()
		client, err := net.Dial("tcp", line.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		accepted, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = accepted.Close() }()
		host, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		return testenv.ProcessAt(host)
	}
	if pid := from(); pid != 0 {
		t.Errorf("the server sees process %d, want none", pid)
	}
	line.TellProcesses()
	if pid := from(); pid != os.Getpid() {
		t.Errorf("the server sees process %d, want %d", pid, os.Getpid())
	}
}

func TestProcessAt(t *testing.T) {
	for _, pid := range []int{1, 255, 256, 65536, 1 << 22} {
		if got := testenv.ProcessAt(testenv.ProcessAddress(pid).String()); got != pid {
			t.Errorf("%v stands for process %d, want %d", testenv.ProcessAddress(pid), got, pid)
		}
	}
	for _, address := range []string{"127.0.0.1", "10.0.0.1", "192.168.0.1", "::1", "somewhere"} {
		if got := testenv.ProcessAt(address); got != 0 {
			t.Errorf("%s stands for process %d, want none", address, got)
		}
	}
}
