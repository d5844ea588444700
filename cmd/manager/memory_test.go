// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestReserveMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64]int64{2000 << 20: 1800 << 20, math.MaxInt64: math.MaxInt64} {
		debug.SetMemoryLimit(limit)
		reserveMemory()
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("%d MiB of %d", got>>20, limit>>20)
		}
	}
}
