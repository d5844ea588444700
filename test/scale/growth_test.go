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

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// growthObjects is how many objects are in all members.
const growthObjects = 100

// growth is what `make bench` plots over the number of members.
type growth struct {
	Members int `json:"members"`
	// StartUp is from the first object until the hub says that all are ready everywhere, in seconds, CPU what that took.
	StartUp float64 `json:"startUp"`
	CPU     float64 `json:"cpu"`
	// Heap is in MiB after a garbage collection; CopyKiB is the share of one copy without what the member keeps of it.
	Heap       float64 `json:"heap"`
	CopyKiB    float64 `json:"copyKiB"`
	RSS        float64 `json:"rss"`
	Goroutines int     `json:"goroutines"`
	// Transition is the CPU time of one transition of a member in ms, Settled how many seconds after the last all is true.
	Transition float64 `json:"transition"`
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
	g.Heap = heap() / (1 << 20)
	g.CopyKiB = (g.Heap-(idle/(1<<20)))*1024/float64(members*growthObjects) - w.heapOfCopy()/1024
	content, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", content)
	if err := os.WriteFile(os.Getenv("GROWTH_RESULT"), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// heapOfCopy is what a member in memory keeps of a copy.
func (w *world) heapOfCopy() float64 {
	const sampled = 50
	var copies []client.Object
	before := heap()
	for i := range sampled {
		member := w.directory.members[multicluster.ClusterName(fmt.Sprintf("member-%04d", i))]
		for _, objects := range member.objects {
			for _, object := range objects {
				copies = append(copies, object.DeepCopyObject().(client.Object))
			}
		}
	}
	after := heap()
	each := (after - before) / float64(len(copies))
	runtime.KeepAlive(copies)
	return each
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
