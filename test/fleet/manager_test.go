// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// process is a manager that runs.
type process struct {
	cmd *exec.Cmd
	// ended is closed when it has exited.
	ended chan struct{}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// running says whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// install makes a cluster a hub with the manifest that people install. Its Pods stay pending, because a hub has no nodes here.
func (f *fleet) install(t *testing.T, hub string) {
	t.Helper()
	f.kubectl(t, hub, "apply", "--server-side", "-f", filepath.Join(f.root, "dist", "install.yaml"))
	f.writeKubeconfig(t, hub)
}

// writeKubeconfig writes the kubeconfig with which a manager comes to its hub: through the line, with the rights of the
// manifest's ServiceAccount and no others.
func (f *fleet) writeKubeconfig(t *testing.T, hub string) {
	t.Helper()
	token := f.kubectl(t, hub, "create", "token", "-n", "flotilla-system", "flotilla-manager", "--duration=24h")
	config, err := clientcmd.LoadFromFile(filepath.Join(f.dir, "kubeconfigs", hub))
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.managerKubeconfig(hub), f.lines[hub].Through(t, content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) managerKubeconfig(hub string) string {
	return filepath.Join(f.dir, "config", hub+".line.kubeconfig")
}

// startManager runs the manager as a process of its own.
func (f *fleet) startManager(t *testing.T) {
	t.Helper()
	f.manager = f.runManager(t, "hub", hubID)
}

// runManager runs a manager for one hub, with more flags if given; all of them write the same log.
func (f *fleet) runManager(t *testing.T, hub, id string, flags ...string) *process {
	t.Helper()
	return f.runManagerInto(t, f.logFile(), hub, id, flags...)
}

// runManagerInto runs a manager that writes a log of its own.
func (f *fleet) runManagerInto(t *testing.T, logFile, hub, id string, flags ...string) *process {
	t.Helper()
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(f.dir, "manager"), append([]string{
		"--kubeconfig", f.managerKubeconfig(hub), "--hub-id", id, "--registration-sources", sources, "--registration-grace-seconds", "2",
		"--metrics-bind-address=0", "--health-bind-address=0", "--log-verbosity=1",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1")
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the manager: %v", err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p
}

// stopManager ends the manager as a rollout would, so that its Lease is free at once.
func (f *fleet) stopManager(t *testing.T) {
	t.Helper()
	if f.manager != nil {
		f.stop(t, f.manager)
	}
	f.manager = nil
}

func (f *fleet) stop(t *testing.T, p *process) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(40 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		t.Errorf("the manager did not stop within 40 s of SIGTERM")
	}
}

// killManager ends the manager without a warning.
func (f *fleet) killManager() {
	_ = f.manager.cmd.Process.Kill()
	<-f.manager.ended
	f.manager = nil
}

// freeLease says of a manager that was killed what it would have said at its end: that it has ended. Otherwise the next one
// would wait for its Lease and its claims.
func (f *fleet) freeLease(t *testing.T) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "flotilla-manager"}}
	released := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":1}}`))
	if err := client.IgnoreNotFound(f.hub.Patch(f.ctx, lease, released)); err != nil {
		t.Fatalf("freeing the manager's Lease: %v", err)
	}
}

// expectSameManager fails when the manager has ended, whatever runs now.
func (f *fleet) expectSameManager(t *testing.T, before *process) {
	t.Helper()
	if f.manager != before || !before.running() {
		t.Errorf("the manager with pid %d is not running any more", before.pid())
	}
}
