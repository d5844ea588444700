// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// restartDelay is how long it takes until a container that ended is started again, without back-off.
	restartDelay = 1200 * time.Millisecond
	gracePeriod  = 60 * time.Second
	redisUser    = 999
)

// container is a container of one life of a Pod. Its first process is the first one of a process namespace, as in a Pod:
// it ignores signals that it does not ask for, and everything ends with it.
type container struct {
	pod    *pod
	name   string
	script string
	// hook is the script of its preStop hook with arguments.
	hook []string
	// idle ends when the container is not started again.
	idle chan struct{}

	mu      sync.Mutex
	process *os.Process
	exited  chan struct{}
	delay   time.Duration
	ended   int
}

// command is a script of a Pod, in its root and with its environment.
func (p *pod) command(container, script string, args ...string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", append([]string{p.config + "/" + script}, args...)...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=/usr/bin:/bin",
		"FLOTILLA_POD=" + p.name,
		fmt.Sprintf("FLOTILLA_PORT=%d", redisPort),
		"FLOTILLA_CONFIG_DIR=" + p.config,
		"FLOTILLA_RECORD_DIR=" + inRoot(running, "record"),
		"FLOTILLA_AUTH_FILE=" + inRoot(running, "auth", "password"),
		"FLOTILLA_DATA_DIR=" + inRoot(running, p.name, "data"),
		"FLOTILLA_RUN_DIR=" + inRoot(running, p.name, "run"),
		"FLOTILLA_TERMINATION_LOG=" + inRoot(running, p.name, "message-"+container),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.lab.root, Setsid: true, Credential: &syscall.Credential{Uid: redisUser, Gid: redisUser}}
	return cmd
}

// start runs a command in the network of the Pod with its output in the log of a container.
func (p *pod) start(cmd *exec.Cmd, container string) error {
	log, err := os.OpenFile(p.path("log-"+container), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_, _ = fmt.Fprintf(log, "--- %s %s\n", time.Now().Format("15:04:05.000"), filepath.Base(cmd.Args[1]))
	cmd.Stdout, cmd.Stderr = log, log
	return inside(p.namespace, cmd.Start)
}

// run starts the container again and again until its Pod ends.
func (c *container) run(life context.Context) {
	defer close(c.idle)
	for life.Err() == nil {
		cmd := c.pod.command(c.name, c.script)
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		_ = os.WriteFile(c.pod.path("message-"+c.name), nil, 0o666)
		exited := make(chan struct{})
		c.mu.Lock()
		if life.Err() != nil {
			c.mu.Unlock()
			return
		}
		if err := c.pod.start(cmd, c.name); err != nil {
			c.mu.Unlock()
			c.pod.lab.Errorf("starting %s of %s: %v", c.name, c.pod.name, err)
			return
		}
		c.process, c.exited = cmd.Process, exited
		c.mu.Unlock()
		_ = cmd.Wait()
		c.mu.Lock()
		c.process = nil
		c.ended++
		delay := c.delay
		c.mu.Unlock()
		close(exited)
		select {
		case <-life.Done():
		case <-time.After(delay):
		}
	}
}

// signal sends a signal to the first process, if there is one.
func (c *container) signal(signal syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		_ = c.process.Signal(signal)
	}
}

func (c *container) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process != nil
}

// stop runs the hook and ends the container, as a kubelet does. It returns how long the container took after the hook.
func (c *container) stop() time.Duration {
	if c.hook != nil {
		cmd := c.pod.command(c.name, c.hook[0], c.hook[1:]...)
		if err := c.pod.start(cmd, c.name); err == nil {
			timer := time.AfterFunc(gracePeriod-10*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			timer.Stop()
		}
	}
	began := time.Now()
	c.signal(syscall.SIGTERM)
	select {
	case <-c.idle:
	case <-time.After(gracePeriod):
		c.signal(syscall.SIGKILL)
		<-c.idle
	}
	return time.Since(began)
}

// setDelay sets how long the next restart takes.
func (c *container) setDelay(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = delay
}
