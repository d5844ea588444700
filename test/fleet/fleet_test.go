// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// hubID is the id of the suite's hub.
const hubID = "fleet-suite"

// reactionFactor is what the race detector, on a busy machine, may add to a reaction time promised for a release build.
const reactionFactor = 3

// fleet is a hub, four members and a manager. The fourth member is not registered at first.
type fleet struct {
	ctx     context.Context
	root    string
	dir     string
	hub     client.Client
	members map[string]client.Client
	configs map[string]*rest.Config
	manager *exec.Cmd
}

// start brings up a fleet of its own in a temporary folder, with three registered members, and the manager.
func start(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{ctx: t.Context(), root: moduleRoot(t), members: map[string]client.Client{}, configs: map[string]*rest.Config{}}
	f.dir = filepath.Join(os.TempDir(), "flotilla-fleet-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() {
		if os.Getenv("FLEET_KEEP") != "" {
			t.Logf("The fleet is left running in %s", f.dir)
			return
		}
		f.stopManager(t)
		f.make(t, "fleet-down")
		if !t.Failed() {
			_ = os.RemoveAll(f.dir)
		}
	})
	f.make(t, "fleet-up")
	f.hub, f.configs["hub"] = f.connect(t, "hub")
	for _, name := range f.memberNames() {
		f.members[name], f.configs[name] = f.connect(t, name)
	}
	f.kubectl(t, "hub", "apply", "-k", filepath.Join(f.root, "config", "hub"))
	f.command(t, "go", "build", "-race", "-o", filepath.Join(f.dir, "manager"), "./cmd/manager")
	for name, region := range map[string]string{"member-1": "eu", "member-2": "eu", "member-3": "us"} {
		f.prepareMember(t, name)
		if err := f.hub.Create(f.ctx, f.registration(t, name, map[string]string{"region": region})); err != nil {
			t.Fatalf("registering %q: %v", name, err)
		}
	}
	f.startManager(t)
	return f
}

func (f *fleet) memberNames() []string {
	return []string{"member-1", "member-2", "member-3", "member-4"}
}

func (f *fleet) connect(t *testing.T, name string) (client.Client, *rest.Config) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(f.dir, "kubeconfigs", name))
	if err != nil {
		t.Fatalf("loading the kubeconfig of %q: %v", name, err)
	}
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatalf("connecting to %q: %v", name, err)
	}
	return c, config
}

// startManager runs the manager as a process of its own.
func (f *fleet) startManager(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(f.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	f.manager = exec.Command(filepath.Join(f.dir, "manager"),
		"--kubeconfig", filepath.Join(f.dir, "kubeconfigs", "hub"), "--hub-id", hubID, "--registration-sources", sources,
		"--metrics-bind-address=0", "--health-bind-address=0", "--log-verbosity=1")
	f.manager.Stdout, f.manager.Stderr = log, log
	f.manager.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	if err := f.manager.Start(); err != nil {
		t.Fatalf("starting the manager: %v", err)
	}
}

// stopManager ends the manager as a rollout would, so that its Lease is free at once.
func (f *fleet) stopManager(t *testing.T) {
	t.Helper()
	if f.manager == nil {
		return
	}
	_ = f.manager.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(40*time.Second, func() { _ = f.manager.Process.Kill() })
	_ = f.manager.Wait()
	if !killer.Stop() {
		t.Errorf("the manager did not stop within 40 s of SIGTERM")
	}
	f.manager = nil
}

func (f *fleet) logFile() string { return filepath.Join(f.dir, "manager.log") }

func (f *fleet) managerLog() string {
	content, err := os.ReadFile(f.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// signalAPIServer sends a signal to the API server of a member; STOP makes it a black hole that still accepts connections.
func (f *fleet) signalAPIServer(t *testing.T, name, signal string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "kwok", "clusters", "*"+name, "pids", "kube-apiserver.pid"))
	if err != nil || len(files) != 1 {
		t.Fatalf("finding the API server of %q: %v %v", name, files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	number := map[string]syscall.Signal{"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}[signal]
	if err := syscall.Kill(pid, number); err != nil {
		t.Fatalf("sending %s to the API server of %q: %v", signal, name, err)
	}
}

func (f *fleet) make(t *testing.T, target string) {
	t.Helper()
	f.command(t, "make", "-s", target, "FLEET_DIR="+f.dir, "MEMBERS=4", "NODES=5")
}

func (f *fleet) kubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	args = append([]string{"--kubeconfig", filepath.Join(f.dir, "kubeconfigs", cluster)}, args...)
	return f.command(t, filepath.Join(f.root, "bin", "kubectl"), args...)
}

func (f *fleet) command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = f.root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") || strings.HasPrefix(v, "KUBECONFIG=")
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// tellState prints what an administrator would look at first.
func (f *fleet) tellState(t *testing.T) {
	t.Helper()
	t.Log(f.kubectl(t, "hub", "get", "mc,redises,nodepools", "-A", "-o", "yaml"))
	lines := strings.Split(f.managerLog(), "\n")
	t.Log("The manager's last words:\n" + strings.Join(lines[max(0, len(lines)-60):], "\n"))
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal(fmt.Errorf("no go.mod above the working directory"))
	return ""
}
