// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	flotilla = "flotilla"
	baseline = "baseline"
	karmada  = "karmada"
	raw      = "raw"
)

// profilingAddress is where the system under test serves its profiles.
const profilingAddress = "127.0.0.1:26060"

// System is one of those that are compared. Raw has no process: the driver writes the copies itself.
type System struct {
	name string
	// agent is how its user agents begin.
	agent string
	// hub is the cluster that its objects are written to.
	hub       *Cluster
	processes []*process
}

// systems returns those that are compared. Beside what is said here, each runs with its defaults.
func systems(f *Fleet, bin, logs string) []*System {
	ours := newProcess(logs, filepath.Join(bin, "manager"), "--kubeconfig", f.managerKubeconfig(), "--hub-id", "bench",
		"--profiling-bind-address", profilingAddress,
		// Ports that may be taken.
		"--metrics-bind-address", "0", "--health-bind-address", "0",
		// Removing everything at once is what is measured, and not the budget that stops it.
		"--removals-budget", "1000000", "--removals-share", "0")
	plain := newProcess(logs, filepath.Join(bin, "baseline"), "--hub", f.kubeconfig("hub"), "--profiling", profilingAddress)
	return []*System{
		{name: flotilla, agent: "flotilla", hub: f.hub, processes: []*process{ours}},
		{name: baseline, agent: "baseline/", hub: f.hub, processes: []*process{plain}},
		{name: raw, agent: driverAgent, hub: f.hub},
	}
}

// isRaw reports whether the driver writes the copies itself.
func (s *System) isRaw() bool { return s.name == raw }

// pids are the running processes.
func (s *System) pids() []int {
	var pids []int
	for _, p := range s.processes {
		if p.cmd != nil {
			pids = append(pids, p.cmd.Process.Pid)
		}
	}
	return pids
}

// start starts the processes and returns without waiting for them.
func (s *System) start() error {
	for _, p := range s.processes {
		if err := p.start(); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the processes as a rollout would, so that a Lease is free at once.
func (s *System) stop() error {
	var errs []error
	for _, p := range slices.Backward(s.processes) {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// logs are the files that the processes write to.
func (s *System) logs() string {
	var logs []string
	for _, p := range s.processes {
		logs = append(logs, p.log)
	}
	return strings.Join(logs, ", ")
}

// process is a program of a system.
type process struct {
	command []string
	log     string
	// ends is the signal that ends it.
	ends syscall.Signal

	cmd   *exec.Cmd
	ended chan struct{}
}

func newProcess(logs, program string, args ...string) *process {
	return &process{command: append([]string{program}, args...), log: filepath.Join(logs, filepath.Base(program)+".log"), ends: syscall.SIGTERM}
}

// shown is the command without the folders of this machine.
func (p *process) shown() string {
	var words []string
	for _, word := range p.command {
		name, value, assigned := strings.Cut(word, "=")
		switch {
		case filepath.IsAbs(word):
			word = filepath.Base(word)
		case assigned && filepath.IsAbs(value):
			word = name + "=" + filepath.Base(value)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.command[0], err)
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return nil
}

func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	defer func() { p.cmd = nil }()
	if err := p.cmd.Process.Signal(p.ends); err != nil {
		return fmt.Errorf("%s ended by itself: its log is %s", p.command[0], p.log)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(40 * time.Second):
		return errors.Join(fmt.Errorf("%s did not end in 40 s, and was killed", p.command[0]), p.cmd.Process.Kill())
	}
}
