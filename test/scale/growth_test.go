// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package scale

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// growthObjects is how many objects are in all members.
const growthObjects = 100

// growth is what `make bench` plots over the number of members.
type growth struct {
	Members int `json:"members"`
	// StartUp is from the first object until the hub says that all are ready everywhere, in seconds, CPU what that took.
	StartUp float64 `json:"startUp"`
	CPU     float64 `json:"cpu"`
	// Heap is in MiB after a garbage collection; CopyKiB is the share of one copy without what the members keep.
	Heap       float64 `json:"heap"`
	CopyKiB    float64 `json:"copyKiB"`
	RSS        float64 `json:"rss"`
	Goroutines int     `json:"goroutines"`
	// Transition is the CPU time of one transition of a member in ms, Writes how many statuses were written for each, which is
	// fewer on a busy machine, and Settled how many seconds after the last transition all is true.
	Transition float64 `json:"transition"`
	Writes     float64 `json:"writes"`
	Settled    float64 `json:"settled"`
}

// TestGrowth measures GROWTH_MEMBERS members in this process, and writes the result into the file GROWTH_RESULT.
func TestGrowth(t *testing.T) {
	members, err := strconv.Atoi(os.Getenv("GROWTH_MEMBERS"))
	if err != nil {
		t.Fatalf("GROWTH_MEMBERS says how many members: %v", err)
	}
	idle := heap()
	cpu := cpuTime(t)
	w := startWorld(t, members, growthObjects)
	g := growth{
		Members: members, StartUp: w.settledAt.Sub(w.placedAt).Seconds(), CPU: (cpuTime(t) - cpu).Seconds(),
		RSS: rss(t), Goroutines: runtime.NumGoroutine(),
	}
	got := w.storm(1000, 10*time.Second)
	t.Log(got)
	g.Transition, g.Settled = got.cpu.Seconds()/float64(got.transitions)*1000, got.settled.Seconds()
	g.Writes = float64(got.during+got.after) / float64(got.transitions)
	g.Heap = heap() / (1 << 20)
	w.directory.forget()
	g.CopyKiB = (heap() - idle) / 1024 / float64(members*growthObjects)
	content, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", content)
	if err := os.WriteFile(os.Getenv("GROWTH_RESULT"), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// heap is what is in use. What has a finalizer is freed by the second collection.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// rss is the resident memory of this process in MiB.
func rss(t *testing.T) float64 {
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(content), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return float64(resident*os.Getpagesize()) / (1 << 20)
}

// forget takes all objects from the members, without telling anyone.
func (d *directory) forget() {
	for _, m := range d.members {
		m.mu.Lock()
		clear(m.objects)
		m.mu.Unlock()
	}
}
