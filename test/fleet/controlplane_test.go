// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
)

const apiServer = "kube-apiserver"

// clusterDir is where kwokctl keeps what belongs to a cluster.
func (f *fleet) clusterDir(cluster string) string {
	return filepath.Join(f.dir, "kwok", "clusters", cluster)
}

func (f *fleet) pidFile(cluster, component string) string {
	return filepath.Join(f.clusterDir(cluster), "pids", component+".pid")
}

// pid is the process of a component of a cluster's control plane.
func (f *fleet) pid(t *testing.T, cluster, component string) int {
	t.Helper()
	content, err := os.ReadFile(f.pidFile(cluster, component))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// signal sends a signal to a component. SIGSTOP makes an API server a black hole that still accepts connections.
func (f *fleet) signal(t *testing.T, cluster, component string, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(f.pid(t, cluster, component), signal); err != nil {
		t.Errorf("sending %v to %s of %q: %v", signal, component, cluster, err)
	}
}

// kill ends a component without a warning, and returns what starts it again as kwokctl did.
func (f *fleet) kill(t *testing.T, cluster, component string) (restart func(*testing.T)) {
	t.Helper()
	again := f.end(t, cluster, component)
	return func(t *testing.T) { t.Helper(); again(t) }
}

// command is how a component of a control plane was started.
type command struct {
	binary string
	args   []string
}

// commandOf reads how a component was started that runs.
func (f *fleet) commandOf(t *testing.T, cluster, component string) command {
	t.Helper()
	process := filepath.Join("/proc", strconv.Itoa(f.pid(t, cluster, component)))
	line, err := os.ReadFile(filepath.Join(process, "cmdline"))
	if err != nil {
		t.Fatalf("reading the command line of %s of %q: %v", component, cluster, err)
	}
	binary, err := os.Readlink(filepath.Join(process, "exe"))
	if err != nil {
		t.Fatal(err)
	}
	// Linked anew while it runs, the file of a process is another one of the same name.
	binary = strings.TrimSuffix(binary, " (deleted)")
	return command{binary: binary, args: strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")}
}

// launch starts a component of a cluster as kwokctl does.
func (f *fleet) launch(t *testing.T, cluster, component string, c command) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(f.clusterDir(cluster), "logs", component+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := &exec.Cmd{
		Path: c.binary, Args: c.args, Dir: f.clusterDir(cluster), Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s of %q: %v", component, cluster, err)
	}
	// Nobody else would take notice of its end, and fleet-down waits for that.
	go func() { _ = cmd.Wait() }()
	if err := os.WriteFile(f.pidFile(cluster, component), fmt.Append(nil, cmd.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
}

// end kills a component and returns what starts it again, with more flags if given.
func (f *fleet) end(t *testing.T, cluster, component string) (again func(*testing.T, ...string)) {
	t.Helper()
	process := filepath.Join("/proc", strconv.Itoa(f.pid(t, cluster, component)))
	started := f.commandOf(t, cluster, component)
	f.signal(t, cluster, component, syscall.SIGKILL)
	NewWithT(t).Eventually(func() bool { return ended(process) }, 10*time.Second, 10*time.Millisecond).Should(BeTrue(), "%s of %s ends", component, cluster)
	return func(t *testing.T, flags ...string) {
		t.Helper()
		f.launch(t, cluster, component, command{binary: started.binary, args: slices.Concat(started.args, flags)})
	}
}

// ended says whether a process is gone, or only waits for its parent to take notice.
func ended(process string) bool {
	stat, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return true
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("Z"))
}

// awaitReady waits until the API server of a cluster is ready.
func (f *fleet) awaitReady(t *testing.T, cluster string) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(f.configs[cluster])
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() error {
		return clientset.RESTClient().Get().AbsPath("/readyz").Timeout(2 * time.Second).Do(f.ctx).Error()
	}, time.Duration(busyFactor())*60*time.Second, 200*time.Millisecond).Should(Succeed(), "the API server of %s is ready", cluster)
}
