// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	flotilla = "flotilla"
	baseline = "baseline"
	raw      = "raw"
)

// profilingAddress is where the system under test serves its profiles.
const profilingAddress = "127.0.0.1:26060"

// System is one of those that are compared. Raw has no process: the driver writes the copies itself.
type System struct {
	name string
	// agent is how its user agents begin.
	agent   string
	command []string
	log     string

	cmd   *exec.Cmd
	ended chan struct{}
}

// systems returns those that are compared. Beside what is said here, each runs with its defaults.
func systems(f *Fleet, bin, logs string) []*System {
	return []*System{
		{name: flotilla, agent: "flotilla", log: filepath.Join(logs, "flotilla.log"), command: []string{
			filepath.Join(bin, "manager"), "--kubeconfig", f.managerKubeconfig(), "--hub-id", "bench", "--profiling-bind-address", profilingAddress,
			// Ports that may be taken.
			"--metrics-bind-address", "0", "--health-bind-address", "0",
			// Removing everything at once is what is measured, and not the budget that stops it.
			"--removals-budget", "1000000", "--removals-share", "0",
		}},
		{name: baseline, agent: "baseline/", log: filepath.Join(logs, "baseline.log"), command: []string{
			filepath.Join(bin, "baseline"), "--hub", f.kubeconfig("hub"), "--profiling", profilingAddress,
		}},
		{name: raw, agent: driverAgent},
	}
}

// isRaw reports whether the driver writes the copies itself.
func (s *System) isRaw() bool { return s.command == nil }

func (s *System) pid() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// start starts the process and returns without waiting for it.
func (s *System) start() error {
	if s.isRaw() {
		return nil
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(s.ended)
	}()
	return nil
}

// stop ends the process as a rollout would, so that its Lease is free at once.
func (s *System) stop() error {
	if s.cmd == nil {
		return nil
	}
	defer func() { s.cmd = nil }()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s ended by itself: its log is %s", s.name, s.log)
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(40 * time.Second):
		return fmt.Errorf("%s did not end in 40 s: killed it: %w", s.name, s.cmd.Process.Kill())
	}
}
