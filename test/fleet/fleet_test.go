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

// busyFactor is what FLEET_BUSY=<number> adds to that where other work takes the processors.
func busyFactor() int {
	if factor, err := strconv.Atoi(os.Getenv("FLEET_BUSY")); err == nil && factor > 0 {
		return factor
	}
	return 1
}

// reactionTime is how long the reaction to a change in a member may take.
func reactionTime() time.Duration { return time.Duration(reactionFactor*busyFactor()) * time.Second }

// fleet is a hub, members and a manager. The last member is not registered at first. The suite talks to the clusters
// directly, the manager through lines that can fail.
type fleet struct {
	// count is how many members are registered at the start.
	count   int
	ctx     context.Context
	root    string
	dir     string
	hub     client.Client
	members map[string]client.Client
	configs map[string]*rest.Config
	lines   map[string]*testenv.Line
	manager *process
	// began is when which scenario did, and rightsTaken what they took from the hub.
	began       []begun
	rightsTaken []withoutRights
}

// start brings up a fleet of its own in a temporary folder, with registered members and one that is not, and the manager.
// With FLEET_KEEP it is in that folder, which outlives the suite and is taken up by the next one.
func start(t *testing.T, registered int) *fleet {
	t.Helper()
	f := &fleet{
		count: registered, ctx: t.Context(), root: moduleRoot(t),
		members: map[string]client.Client{}, configs: map[string]*rest.Config{}, lines: map[string]*testenv.Line{},
	}
	f.dir = filepath.Join(os.TempDir(), "flotilla-fleet-"+strconv.Itoa(os.Getpid()))
	kept := os.Getenv("FLEET_KEEP")
	if kept != "" {
		f.dir = kept
	}
	t.Cleanup(func() {
		f.stopManager(t)
		if kept != "" {
			t.Logf("The fleet is left running in %s", f.dir)
			return
		}
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
	f.install(t, "hub")
	f.command(t, "go", "build", "-race", "-o", filepath.Join(f.dir, "manager"), "./cmd/manager")
	f.command(t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", filepath.Join(f.dir, "kubectl-flotilla"), "./cmd/kubectl-flotilla")
	f.freeLease(t)
	f.startManager(t)
	for _, name := range f.registered() {
		f.registerByCommand(t, name)
	}
	return f
}

// registered are the members that are registered at the start.
func (f *fleet) registered() []string { return f.memberNames()[:f.count] }

// regions are the regions of the registered members.
func (f *fleet) regions() map[string]string {
	regions := map[string]string{}
	for i, name := range f.registered() {
		regions[name] = "us"
		if i < 2 {
			regions[name] = "eu"
		}
	}
	return regions
}

func (f *fleet) memberNames() []string {
	var names []string
	for i := range f.count + 1 {
		names = append(names, fmt.Sprint("member-", i+1))
	}
	return names
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
	f.lines[name] = testenv.NewLine(t, strings.TrimPrefix(config.Host, "https://"))
	return c, config
}

func (f *fleet) logFile() string { return filepath.Join(f.dir, "manager.log") }

func (f *fleet) managerLog() string {
	content, err := os.ReadFile(f.logFile())
	if err != nil {
		return err.Error()
	}
	return string(content)
}

func (f *fleet) make(t *testing.T, target string) {
	t.Helper()
	f.command(t, "make", "-s", target, "FLEET_DIR="+f.dir, fmt.Sprint("MEMBERS=", f.count+1), "NODES=5", "AUDIT_POLICY="+filepath.Join(f.root, "test", "fleet", "testdata", "audit.yaml"))
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
