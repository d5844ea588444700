// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const phaseGrowth = "growth"

// growthPhase is the phase of a number of members.
func growthPhase(members int) string { return fmt.Sprintf("%s, %d members", phaseGrowth, members) }

// growth is what TestGrowth of test/scale writes.
type growth struct {
	Members    int     `json:"members"`
	StartUp    float64 `json:"startUp"`
	CPU        float64 `json:"cpu"`
	Heap       float64 `json:"heap"`
	CopyKiB    float64 `json:"copyKiB"`
	RSS        float64 `json:"rss"`
	Goroutines int     `json:"goroutines"`
	Transition float64 `json:"transition"`
	Writes     float64 `json:"writes"`
	Settled    float64 `json:"settled"`
}

// grow runs placement and roll-up with more and more members in memory, each time in a process of its own, which holds the
// members as well.
func (b *bench) grow(ctx context.Context, bin string, sizes []int) error {
	b.say.title("members in memory")
	results := map[int]growth{}
	for _, members := range sizes {
		b.say.began(flotilla, growthPhase(members))
		s := sample{Round: 1, System: flotilla, Phase: growthPhase(members)}
		g, other, err := b.growTo(ctx, bin, members)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.Problem = err.Error()
		} else {
			results[members] = g
			s.Values = values{
				"start-up s": g.StartUp, "start-up CPU s": g.CPU, "heap MiB": g.Heap, "heap KiB a copy": g.CopyKiB, "RSS MiB": g.RSS,
				"goroutines": float64(g.Goroutines), "transition CPU ms": g.Transition, "writes a transition": g.Writes, "settled s": g.Settled,
				"load": loadAverage(), "other cores": other,
			}
		}
		b.samples = append(b.samples, s)
		b.say.ended(s)
	}
	few, many := results[sizes[0]], results[sizes[len(sizes)-1]]
	if few.Transition > 0 && many.Transition > 0 {
		b.samples = append(b.samples, sample{Round: 1, System: flotilla, Phase: phaseGrowth, Values: values{
			"transition ratio": many.Transition / few.Transition,
			"start-up ratio":   many.CPU / float64(many.Members) / (few.CPU / float64(few.Members)),
		}})
	}
	return nil
}

// growTo also returns how many cores other work took.
func (b *bench) growTo(ctx context.Context, bin string, members int) (g growth, other float64, err error) {
	file, err := os.CreateTemp("", "growth-*.json")
	if err != nil {
		return g, 0, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_ = file.Close()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "scale.test"), "-test.run", "^TestGrowth$", "-test.timeout", "1h", "-test.v")
	cmd.Dir = filepath.Join(b.fleet.root, "test", "scale")
	cmd.Env = append(os.Environ(), fmt.Sprint("GROWTH_MEMBERS=", members), "GROWTH_RESULT="+file.Name())
	cmd.Stdout, cmd.Stderr = &out, &out
	// An interrupted test still has to stop its API server.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	began, busy := time.Now(), machineCPU()
	if err := cmd.Run(); err != nil {
		return g, 0, fmt.Errorf("%w: %s", err, lastBytes(out.String(), 1000))
	}
	// What the process waited for is in it: the API server and etcd.
	own := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	other = max(0, machineCPU()-busy-own.Seconds()) / time.Since(began).Seconds()
	content, err := os.ReadFile(file.Name())
	if err != nil {
		return g, 0, err
	}
	return g, other, json.Unmarshal(content, &g)
}

func lastBytes(text string, n int) string { return text[max(0, len(text)-n):] }
