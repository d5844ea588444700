// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The network of the laboratory: one bridge that all Pods and the clients are on, and another for those that are cut off
// together. It is in the namespace of the test, which hack/ha.sh makes, so it ends with it.
const (
	mainland = "mainland"
	island   = "island"
	subnet   = "10.66.0."
)

// ip runs the command of that name.
func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

func ips(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if err := ip(line); err != nil {
			t.Fatal(err)
		}
	}
}

// makeNetwork prepares the namespace of this process: names of namespaces that nobody else sees, and the bridges.
func makeNetwork() error {
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("ha", "/run/netns", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /run/netns: %w", err)
	}
	for _, line := range []string{
		"link set lo up",
		"link add " + mainland + " type bridge", "link set " + mainland + " up",
		"link add " + island + " type bridge", "link set " + island + " up",
		"addr add " + subnet + "1/24 dev " + mainland,
	} {
		if err := ip(line); err != nil {
			return err
		}
	}
	return nil
}

// inside runs f on a thread in a network namespace. The thread ends with it.
func inside(namespace string, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- enter(namespace, f)
	}()
	return <-result
}

// enter moves the calling thread, which must be locked and is never unlocked, to a network namespace.
func enter(namespace string, f func() error) error {
	handle, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Close() }()
	if err := unix.Setns(int(handle.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering namespace %q: %w", namespace, err)
	}
	return f()
}
