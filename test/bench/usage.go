// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of CPU times in /proc, on every architecture that Go runs on.
const ticksPerSecond = 100

// usage is the CPU seconds used up to a moment.
type usage struct {
	at                                    time.Time
	system, hub, members, driver, machine float64
}

func (f *Fleet) usage(s *System) usage {
	now := usage{at: time.Now(), hub: f.hub.cpu(), driver: cpuOf(os.Getpid()), machine: machineCPU()}
	for _, pid := range s.pids() {
		now.system += cpuOf(pid)
	}
	for _, member := range f.members {
		now.members += member.cpu()
	}
	return now
}

func (u usage) since(before usage) usage {
	return usage{
		at: u.at, system: u.system - before.system, hub: u.hub - before.hub, members: u.members - before.members,
		driver: u.driver - before.driver, machine: u.machine - before.machine,
	}
}

// cpu sums over the processes of the cluster.
func (c *Cluster) cpu() float64 {
	var sum float64
	for _, pid := range c.pids() {
		sum += cpuOf(pid)
	}
	return sum
}

// pids returns the processes of the cluster by component.
func (c *Cluster) pids() map[string]int {
	pids := map[string]int{}
	files, _ := filepath.Glob(filepath.Join(c.dir, "pids", "*.pid"))
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil {
			pid, _ := strconv.Atoi(strings.TrimSpace(string(content)))
			pids[strings.TrimSuffix(filepath.Base(file), ".pid")] = pid
		}
	}
	return pids
}

// cpuOf returns the CPU seconds of a process, and 0 for one that is not there.
func cpuOf(pid int) float64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may contain anything. Of the fields after it, the 12th and the 13th are user and system time.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	return (number(fields[11]) + number(fields[12])) / ticksPerSecond
}

// machineCPU returns the CPU seconds that the machine was busy.
func machineCPU() float64 {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(content), "\n")
	var busy float64
	// user, nice, system, idle, iowait, irq, softirq, steal
	for i, field := range strings.Fields(line)[1:9] {
		if i != 3 && i != 4 {
			busy += number(field)
		}
	}
	return busy / ticksPerSecond
}

// rss returns the resident memory of the processes in MiB.
func (s *System) rss() float64 {
	var sum float64
	for _, pid := range s.pids() {
		sum += rssOf(pid)
	}
	return sum
}

// rssOf returns the resident memory of a process in MiB.
func rssOf(pid int) float64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			return number(strings.Fields(rest)[0]) / 1024
		}
	}
	return 0
}

func loadAverage() float64 {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	return number(strings.Fields(string(content))[0])
}

func number(text string) float64 {
	value, _ := strconv.ParseFloat(text, 64)
	return value
}
