// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-flotilla implements the kubectl plugin `kubectl flotilla`.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/flotilla-dev/flotilla/internal/plugin"
)

// version and commit are set by `make build` at link time.
var version, commit string

// build describes this binary: version, commit and toolchain.
func build() string {
	return fmt.Sprintf("kubectl-flotilla %s (commit %s, %s, %s/%s)",
		cmp.Or(version, "unknown"), cmp.Or(commit, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := plugin.Run(ctx, build(), os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
