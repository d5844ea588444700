// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// process is what /proc tells of a process.
type process struct {
	parent int
	// spent is the processor time of it and of its children that have ended.
	spent time.Duration
	// kib is what it has in memory and shares with no other process or file.
	kib int
}

func processes() map[int]process {
	found := map[int]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		p := process{}
		p.parent, _ = strconv.Atoi(fields[1])
		for _, field := range fields[13:15] {
			hundredths, _ := strconv.Atoi(field)
			p.spent += time.Duration(hundredths) * 10 * time.Millisecond
		}
		// Its own time is too short to be counted in hundredths.
		schedule, _ := os.ReadFile(filepath.Dir(path) + "/schedstat")
		own, _ := strconv.Atoi(strings.Fields(string(schedule) + " 0")[0])
		p.spent += time.Duration(own)
		rollup, _ := os.ReadFile(filepath.Dir(path) + "/smaps_rollup")
		for line := range strings.Lines(string(rollup)) {
			if strings.HasPrefix(line, "Private_") {
				kib, _ := strconv.Atoi(strings.Fields(line)[1])
				p.kib += kib
			}
		}
		found[pid] = p
	}
	return found
}

// used is the processor time and memory of the containers of a Pod with all their processes.
func (p *pod) used() map[string]process {
	all := processes()
	sums := map[string]process{}
	for name, c := range p.life() {
		c.mu.Lock()
		first := c.process
		c.mu.Unlock()
		if first == nil {
			continue
		}
		sum := process{}
		for pid := range all {
			at := pid
			for at != first.Pid && at > 1 {
				at = all[at].parent
			}
			if at == first.Pid {
				sum.spent += all[pid].spent
				sum.kib += all[pid].kib
			}
		}
		sums[name] = sum
	}
	return sums
}

// TestIdle measures what containers cost while nothing happens.
func TestIdle(t *testing.T) {
	long(t)
	l := startLab(t)
	const measured = 45 * time.Second
	// The stand-in for the kubelet must not be counted, nor what follows a start.
	time.Sleep(5 * time.Second)
	primary := l.mustPrimary()
	before := map[*pod]map[string]process{}
	for _, p := range l.pods[:voters] {
		before[p] = p.used()
	}
	time.Sleep(measured)
	for _, p := range l.pods[:voters] {
		role, total := "replica", 0.0
		if p == primary {
			role = "primary"
		}
		var parts []string
		now := p.used()
		for name := range now {
			milli := 1000 * (now[name].spent - before[p][name].spent).Seconds() / measured.Seconds()
			total += milli
			parts = append(parts, fmt.Sprintf("%s %.1fm %d KiB", name, milli, now[name].kib))
		}
		slices.Sort(parts)
		t.Logf("RESULT idle %s (%s): %s; together %.1fm", p.name, role, strings.Join(parts, ", "), total)
	}
}

// TestLargeData hands over with several GiB, of which nothing may be copied again but to the Pod that was replaced.
func TestLargeData(t *testing.T) {
	long(t)
	mib := 3072
	if given, err := strconv.Atoi(os.Getenv("HA_DATA_MIB")); err == nil {
		mib = given
	}
	l := startLab(t)
	primary := l.mustPrimary()
	for _, p := range l.pods[:voters] {
		// What a copy takes must not depend on how well zeros compress.
		if err := p.with(redisPort, func(c *conn) error { _, err := c.do("CONFIG", "SET", "rdbcompression", "no"); return err }); err != nil {
			t.Fatal(err)
		}
	}
	err := primary.with(redisPort, func(c *conn) error {
		c.timeout = 30 * time.Second
		for i := range mib {
			if _, err := c.do("SETRANGE", fmt.Sprintf("large:%d", i), "1048575", "x"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.rounds(fmt.Sprintf("primary deleted, %d MiB", mib), times(0, 2), bound{max: 3 * time.Second}, func(int) string {
		p := l.mustPrimary()
		third := l.others(p)
		done := make(chan struct{})
		go func() { p.delete(); close(done) }()
		var info map[string]string
		for next := p; next == p || next == nil || info["sync_partial_ok"] == ""; time.Sleep(20 * time.Millisecond) {
			if next = l.primary(); next != nil && next != p {
				info, _ = next.info("stats")
			}
		}
		time.Sleep(2 * time.Second)
		next := l.mustPrimary()
		info, err := next.info("stats")
		if err != nil {
			t.Fatal(err)
		}
		<-done
		began := time.Now()
		l.settle()
		if info["sync_partial_ok"] == "0" || info["sync_full"] != "0" {
			t.Errorf("%s made %s full copies and continued %s replicas, want none and one of %d", next.name, info["sync_full"], info["sync_partial_ok"], len(third)-1)
		}
		return fmt.Sprintf("%s; sync_full %s, sync_partial_ok %s; the former primary is in sync after %.1f s", handedOver(p), info["sync_full"], info["sync_partial_ok"], time.Since(began).Seconds())
	})
}
