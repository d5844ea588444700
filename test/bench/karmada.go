// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/cert"
)

// karmadaObjects are what Karmada needs to serve its API, and what says where the objects of the benchmark go.
var (
	//go:embed karmada-api.yaml
	karmadaAPI string
	//go:embed karmada-policy.yaml
	karmadaPolicy string
)

// karmadaLimits are what Karmada's test report for 100 clusters sets. By default it sends 40 requests a second.
var karmadaLimits = []string{"--kube-api-qps=200", "--kube-api-burst=400"}

// karmadaSetup is the place in which Karmada is set up.
type karmadaSetup struct {
	fleet *Fleet
	// checkout is Karmada's source, with its binaries in bin; dir holds certificates.
	checkout, bin, dir string
	// apiPort and webhookPort are where its extension API server and its webhooks listen.
	apiPort, webhookPort int
}

// newKarmada installs Karmada in an API server of its own, and joins the members. It has no process when that is done.
func newKarmada(ctx context.Context, f *Fleet, checkout, logs string) (system *System, err error) {
	k := &karmadaSetup{
		fleet: f, checkout: checkout, bin: filepath.Join(checkout, "_output", "bin", runtime.GOOS, runtime.GOARCH),
		dir: filepath.Join(f.dir, "config", "karmada"),
	}
	if k.apiPort, err = freePort(); err != nil {
		return nil, err
	}
	if k.webhookPort, err = freePort(); err != nil {
		return nil, err
	}
	if system, err = k.system(logs); err != nil {
		return nil, err
	}
	if err := k.install(ctx); err != nil {
		return nil, err
	}
	if err = system.start(); err == nil {
		err = k.join(ctx)
	}
	return system, errors.Join(err, system.stop())
}

// system returns the processes of Karmada, with its defaults but for the limits.
func (k *karmadaSetup) system(logs string) (*System, error) {
	etcd, err := k.etcd()
	if err != nil {
		return nil, err
	}
	config := k.fleet.kubeconfig(karmada)
	crt, key := filepath.Join(k.dir, "tls.crt"), filepath.Join(k.dir, "tls.key")
	// Ports that nobody asks for are chosen by the system.
	unused := []string{"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"}
	commands := [][]string{
		{
			"karmada-aggregated-apiserver", "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config, "--etcd-servers=" + etcd,
			"--tls-cert-file=" + crt, "--tls-private-key-file=" + key, "--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", k.apiPort),
		},
		append([]string{"karmada-webhook", "--cert-dir=" + k.dir, "--bind-address=127.0.0.1", fmt.Sprint("--secure-port=", k.webhookPort)}, unused...),
		append([]string{"karmada-controller-manager"}, unused...),
		append([]string{"karmada-scheduler"}, unused...),
	}
	system := &System{name: karmada, agent: karmada, hub: k.fleet.hubs[1]}
	for _, command := range commands {
		program := filepath.Join(k.bin, command[0])
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("%w: run `make karmada-aggregated-apiserver karmada-webhook karmada-controller-manager karmada-scheduler karmadactl` in the checkout", err)
		}
		arguments := append([]string{"--kubeconfig=" + config}, command[1:]...)
		system.processes = append(system.processes, newProcess(logs, program, append(arguments, karmadaLimits...)...))
	}
	// It keeps nothing, and would wait for the end of its watches for a minute.
	system.processes[0].ends = syscall.SIGKILL
	return system, nil
}

// etcd returns the address of the etcd of Karmada's API server.
func (k *karmadaSetup) etcd() (string, error) {
	file := filepath.Join(k.fleet.dir, "config", karmada+".yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	port := regexp.MustCompile(`etcdPort: (\d+)`).FindSubmatch(content)
	if port == nil {
		return "", fmt.Errorf("%s names no port of etcd", file)
	}
	return "http://127.0.0.1:" + string(port[1]), nil
}

// install puts the APIs of Karmada and of the benchmark into the API server.
func (k *karmadaSetup) install(ctx context.Context) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"karmada-aggregated-apiserver.karmada-system.svc"})
	if err != nil {
		return fmt.Errorf("making a certificate: %w", err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(k.dir, "tls.crt"), crt, 0o600), os.WriteFile(filepath.Join(k.dir, "tls.key"), key, 0o600))
	if err != nil {
		return err
	}
	webhooks, err := os.ReadFile(filepath.Join(k.checkout, "artifacts", "deploy", "webhook-configuration.yaml"))
	if err != nil {
		return err
	}
	fill := strings.NewReplacer(
		"{{caBundle}}", base64.StdEncoding.EncodeToString(crt), "{{port}}", strconv.Itoa(k.apiPort),
		"karmada-webhook.karmada-system.svc:443", fmt.Sprint("127.0.0.1:", k.webhookPort),
	)
	return errors.Join(
		k.apply(ctx, "", "-R", "-f", filepath.Join(k.checkout, "charts", "karmada", "_crds", "bases")),
		k.apply(ctx, "", "-f", filepath.Join(k.fleet.root, "config", "crd", "bases", "flotilla.dev_nodepools.yaml")),
		k.apply(ctx, fill.Replace(karmadaAPI), "-f", "-"),
		k.apply(ctx, fill.Replace(string(webhooks)), "-f", "-"),
	)
}

// join joins the members and creates the policy, once Karmada serves its API.
func (k *karmadaSetup) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := k.run(ctx, "", filepath.Join(k.fleet.root, "bin", "kubectl"), "wait", "apiservice", "v1alpha1.cluster.karmada.io",
		"--for=condition=Available", "--timeout=120s")
	if err != nil {
		return err
	}
	for _, member := range k.fleet.members {
		joined := []string{"get", "cluster.cluster.karmada.io", member.name}
		if k.run(ctx, "", filepath.Join(k.fleet.root, "bin", "kubectl"), joined...) == nil {
			continue
		}
		err := k.run(ctx, "", filepath.Join(k.bin, "karmadactl"), "join", member.name, "--cluster-kubeconfig", k.fleet.kubeconfig(member.name))
		if err != nil {
			return err
		}
	}
	// The webhooks may not serve yet.
	for {
		if err = k.apply(ctx, karmadaPolicy, "-f", "-"); err == nil || !pause(ctx, time.Second) {
			return err
		}
	}
}

func (k *karmadaSetup) apply(ctx context.Context, input string, args ...string) error {
	return k.run(ctx, input, filepath.Join(k.fleet.root, "bin", "kubectl"), append([]string{"apply", "--server-side", "--force-conflicts"}, args...)...)
}

// run runs a command of Karmada's API server.
func (k *karmadaSetup) run(ctx context.Context, input, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, append(args, "--kubeconfig", k.fleet.kubeconfig(karmada))...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// freePort returns a port of this machine on which nobody listens.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
