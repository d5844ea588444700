// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"runtime/debug"
)

// reserveMemory lowers the memory limit of the Go runtime to nine tenths, if GOMEMLIMIT sets one: the Deployment sets it
// to the limit of the container, which also counts what the runtime does not.
func reserveMemory() {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
