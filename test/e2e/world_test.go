// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// managerNamespace is where the manager runs on the hub.
const managerNamespace = "flotilla-system"

// managerLabels select its Pods.
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "flotilla-manager"}

// world is the fleet under test.
type world struct {
	settings
	hub     cluster
	members []cluster
}

// cluster is a connection to one cluster.
type cluster struct {
	client.WithWatch
	name   string
	config *rest.Config
}

func connect(t *testing.T) *world {
	t.Helper()
	// The writer counts refused connections; a line for each is too much.
	logging.Disable()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	open := func(path string) cluster {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatalf("loading the kubeconfig %q: %v", path, err)
		}
		config.QPS = -1
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatalf("connecting with %q: %v", path, err)
		}
		return cluster{WithWatch: c, name: filepath.Base(path), config: config}
	}
	w := &world{settings: load(t)}
	w.hub = open(w.settings.hub)
	for _, path := range w.settings.members {
		w.members = append(w.members, open(path))
	}
	// A change goes to the first of those that are well before it goes to the next.
	slices.SortFunc(w.members, func(a, b cluster) int { return strings.Compare(a.name, b.name) })
	return w
}

// machine runs a command of hack/e2e.sh on the machines below the clusters.
func (w *world) machine(t *testing.T, args ...string) {
	t.Helper()
	if err := w.tryMachine(args...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) tryMachine(args ...string) error {
	script, err := filepath.Abs(filepath.Join("..", "..", "hack", "e2e.sh"))
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(w.dir)
	if err != nil {
		return err
	}
	cmd := exec.Command(script, args...)
	cmd.Env = append(os.Environ(), "E2E_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("hack/e2e.sh %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// machineOf is where a Pod runs: hack/e2e.sh names nodes after their machines.
func machineOf(pod corev1.Pod) string { return strings.TrimSuffix(pod.Spec.NodeName, "-node") }

// dialFrom connects from a machine, as one of its processes does.
func (w *world) dialFrom(ctx context.Context, machine, address string) (net.Conn, error) {
	pid, err := os.ReadFile(filepath.Join(w.dir, "clusters", machine, "init.pid"))
	if err != nil {
		return nil, err
	}
	there, err := os.Open(filepath.Join("/proc", strings.TrimSpace(string(pid)), "ns", "net"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = there.Close() }()
	var conn net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread has the network of the machine from now on: it ends with this goroutine, which does not unlock it.
		goruntime.LockOSThread()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}()
	<-done
	return conn, err
}

// killManager ends every process of the manager without a chance to say goodbye. New Pods take over, so that the
// kubelet's growing pause between restarts is not what is measured.
func (w *world) killManager(t *testing.T) {
	t.Helper()
	var pods corev1.PodList
	if err := w.hub.List(t.Context(), &pods, client.InNamespace(managerNamespace), managerLabels); err != nil {
		t.Fatalf("listing the manager's Pods: %v", err)
	}
	for _, pod := range pods.Items {
		if w.ours() && pod.Status.Phase == corev1.PodRunning {
			w.machine(t, "kill", "hub", string(pod.UID), "manager")
		}
		if err := w.hub.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Fatalf("deleting the manager's Pod %q: %v", pod.Name, err)
		}
	}
}

// eventually tries until there is no error any more, and fails the test with the last one.
func eventually(t *testing.T, timeout time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	within(t, timeout, 200*time.Millisecond, what, try)
}

// within is eventually for what costs too much to be tried all the time.
func within(t *testing.T, timeout, interval time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	last := fmt.Errorf("not tried")
	err := wait.PollUntilContextTimeout(t.Context(), interval, timeout, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, timeout, last)
	}
}

// lasts fails the test when there is an error at any time within the duration.
func lasts(t *testing.T, duration, interval time.Duration, what string, holds func(ctx context.Context) error) {
	t.Helper()
	began := time.Now()
	err := wait.PollUntilContextCancel(t.Context(), interval, true, func(ctx context.Context) (bool, error) {
		return time.Since(began) > duration, holds(ctx)
	})
	if err != nil {
		t.Fatalf("%s, for %s: %v", what, time.Since(began).Round(time.Second), err)
	}
}
