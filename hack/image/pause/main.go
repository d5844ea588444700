// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause holds namespaces: it is the first process of a Pod's sandbox, and of a cluster of `make e2e`.
// It waits to be ended and reaps the orphans that become its children.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
