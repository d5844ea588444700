// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestStorm is the small one of what the drill does with a thousand members.
func TestStorm(t *testing.T) {
	w := startWorld(t, 40, 10)
	w.expectCheap(w.storm(200, 4*time.Second), 4*time.Second)
}

// expectCheap expects at most one write per object and second, and that all of them are true.
func (w *world) expectCheap(got cost, over time.Duration) {
	w.Helper()
	w.Log(got)
	if most := w.objects * int(over/time.Second); got.during > most {
		w.Errorf("%d status writes, want at most %d", got.during, most)
	}
	if most := w.objects * int(got.settled/time.Second+1); got.after > most {
		w.Errorf("%d status writes after the last transition, want at most %d", got.after, most)
	}
	if most := time.Duration(busyFactor()) * 5 * time.Second; got.settled > most {
		w.Errorf("settled %v after the last transition, want at most %v", got.settled, most)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wrong) > 0 {
		w.Errorf("versions that do not add up: %v", w.wrong)
	}
}

// busyFactor is what FLEET_BUSY=<number> allows where other work takes the processors, as for the fleet suite.
func busyFactor() int {
	if factor, err := strconv.Atoi(os.Getenv("FLEET_BUSY")); err == nil && factor > 0 {
		return factor
	}
	return 1
}

// BenchmarkTransition measures what one transition of a member costs, with 100 objects placed in all members.
func BenchmarkTransition(b *testing.B) {
	for _, size := range []struct {
		name    string
		members int
	}{{"members=100", 100}, {"members=1000", 1000}} {
		b.Run(size.name, func(b *testing.B) {
			w := startWorld(b, size.members, 100)
			b.ResetTimer()
			var sum cost
			for range b.N {
				got := w.storm(1000, 10*time.Second)
				sum.transitions, sum.cpu = sum.transitions+got.transitions, sum.cpu+got.cpu
				sum.during += got.during + got.after
			}
			b.ReportMetric(float64(sum.cpu.Microseconds())/float64(sum.transitions), "cpu-µs/transition")
			b.ReportMetric(float64(sum.during)/float64(sum.transitions), "writes/transition")
		})
	}
}
