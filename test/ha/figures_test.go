// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// figures are what a scenario found in its rounds.
type figures struct {
	*testing.T
	name    string
	outages []time.Duration
	acked   int
	lost    int
	extra   []string
}

// bound is what a scenario may cost: outages on a machine that is not busy with something else, and acknowledged writes in
// a round. Replication is asynchronous, so a crash may lose the writes of some milliseconds; what is planned loses none.
type bound struct {
	p95, max time.Duration
	lost     int
}

// crash is the number of writes of 50 ms.
const crash = 40

// times is how often a scenario runs: few times in a short run, and HA_FACTOR times as often as it says otherwise.
func times(few, many int) int {
	if testing.Short() {
		return few
	}
	factor, err := strconv.ParseFloat(os.Getenv("HA_FACTOR"), 64)
	if err != nil {
		factor = 1
	}
	return max(1, int(float64(many)*factor))
}

// long skips a scenario that is not part of a short run.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not part of a short run")
	}
}

func newFigures(t *testing.T, name string) *figures { return &figures{T: t, name: name} }

// add takes the figures of one round.
func (f *figures) add(w *writer, since time.Time, lost int, notes ...string) {
	f.Helper()
	outage := w.outage(since)
	f.outages = append(f.outages, outage)
	f.acked += w.total()
	f.lost += lost
	f.Logf("%s %d: outage %.2f s, %d acknowledged, %d lost, errors %s %s", f.name, len(f.outages), outage.Seconds(), w.total(), lost, w.said(), strings.Join(notes, ", "))
}

// quantile returns a percentile of a sorted list: the smallest that so many percent do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func load() float64 {
	content, _ := os.ReadFile("/proc/loadavg")
	value, _ := strconv.ParseFloat(strings.Fields(string(content) + " ?")[0], 64)
	return value
}

// report prints the line of a scenario, and fails the test for lost writes, and for outages that are too long unless the
// machine has more to do than it can.
func (f *figures) report(limit bound) {
	f.Helper()
	if len(f.outages) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(f.outages))
	p95, longest := quantile(sorted, 95), sorted[len(sorted)-1]
	busy := load() > float64(runtime.NumCPU())
	line := fmt.Sprintf("RESULT %-44s n=%d outage p50 %.2f p95 %.2f max %.2f s, %d acknowledged, %d lost, load %.0f",
		f.name, len(sorted), quantile(sorted, 50).Seconds(), p95.Seconds(), longest.Seconds(), f.acked, f.lost, load())
	f.Log(strings.Join(append([]string{line}, f.extra...), "; "))
	if f.lost > limit.lost*len(sorted) {
		f.Errorf("%s: %d acknowledged writes were lost, want %d at most", f.name, f.lost, limit.lost*len(sorted))
	}
	for name, pair := range map[string][2]time.Duration{"p95": {p95, limit.p95}, "max": {longest, limit.max}} {
		switch {
		case pair[1] == 0 || pair[0] <= pair[1]:
		case busy:
			f.Logf("%s: %s of outages %s is more than %s, which is not judged on a busy machine", f.name, name, pair[0], pair[1])
		default:
			f.Errorf("%s: %s of outages is %s, want %s at most", f.name, name, pair[0], pair[1])
		}
	}
}
