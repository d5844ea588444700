// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// driverAgent is the user agent of this program.
const driverAgent = "bench-driver"

// Cluster is one cluster of the fleet: the hub or a member.
type Cluster struct {
	name   string
	dir    string // of kwokctl, with pids and logs
	config *rest.Config
	client client.Client
}

// Fleet is a hub and its members, as `make fleet-up` starts them, and Karmada's API server, which is one more hub.
type Fleet struct {
	root, dir string
	// hub is that of the turn.
	hub     *Cluster
	hubs    []*Cluster
	members []*Cluster
	// more is the name of one more hub, if there is one.
	more string
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	return scheme
}

// script runs a script of hack/ for the fleet.
func (f *Fleet) script(ctx context.Context, members int, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(f.root, "hack", name), args...)
	cmd.Env = append(os.Environ(), "FLEET_DIR="+f.dir, fmt.Sprint("MEMBERS=", members), "NODES=0", "MORE_HUBS="+f.more,
		"AUDIT_POLICY="+filepath.Join(f.root, "test", "bench", "audit.yaml"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running hack/%s %v: %w", name, args, err)
	}
	return nil
}

// start starts the clusters, and registers the members for Flotilla and for the baseline.
func (f *Fleet) start(ctx context.Context, members int) error {
	for _, step := range [][]string{{"fleet.sh", "up"}, {"register.sh", "hub"}, {"register.sh", "members"}} {
		if err := f.script(ctx, members, step[0], step[1:]...); err != nil {
			return err
		}
	}
	// A fleet that was kept may have more of them, and all of them are registered.
	kept, err := filepath.Glob(f.kubeconfig("member-*"))
	if err != nil {
		return err
	}
	if f.hub, err = f.connect("hub"); err != nil {
		return err
	}
	f.hubs = []*Cluster{f.hub}
	if f.more != "" {
		more, err := f.connect(f.more)
		if err != nil {
			return err
		}
		f.hubs = append(f.hubs, more)
	}
	for i := range kept {
		member, err := f.connect(fmt.Sprint("member-", i+1))
		if err != nil {
			return err
		}
		f.members = append(f.members, member)
	}
	if err := f.registerForBaseline(ctx); err != nil {
		return err
	}
	return f.writeManagerKubeconfig(ctx)
}

func (f *Fleet) stop(ctx context.Context, members int) error {
	return f.script(ctx, members, "fleet.sh", "down")
}

func (f *Fleet) kubeconfig(name string) string { return filepath.Join(f.dir, "kubeconfigs", name) }

func (f *Fleet) managerKubeconfig() string {
	return filepath.Join(f.dir, "config", "bench-manager.kubeconfig")
}

func (f *Fleet) connect(name string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig(name))
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig of %q: %w", name, err)
	}
	config.QPS, config.UserAgent = -1, driverAgent
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to %q: %w", name, err)
	}
	return &Cluster{name: name, dir: filepath.Join(f.kwokDir(), "clusters", name), config: config, client: c}, nil
}

// kwokDir is where kwokctl keeps the clusters; pid files and logs are below it.
func (f *Fleet) kwokDir() string { return filepath.Join(f.dir, "kwok") }

// registerForBaseline makes a Secret of each member's kubeconfig, as the kubeconfig provider wants them. The namespace is not
// one that Flotilla looks at.
func (f *Fleet) registerForBaseline(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "baseline"}}
	if err := client.IgnoreAlreadyExists(f.hub.client.Create(ctx, namespace)); err != nil {
		return fmt.Errorf("creating the namespace of the baseline: %w", err)
	}
	for _, member := range f.members {
		content, err := os.ReadFile(f.kubeconfig(member.name))
		if err != nil {
			return fmt.Errorf("reading the kubeconfig of %q: %w", member.name, err)
		}
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace.Name, Name: member.name,
				Labels: map[string]string{"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
			},
			Data: map[string][]byte{"kubeconfig": content},
		}
		if err := client.IgnoreAlreadyExists(f.hub.client.Create(ctx, secret)); err != nil {
			return fmt.Errorf("registering %q for the baseline: %w", member.name, err)
		}
	}
	return nil
}

// writeManagerKubeconfig writes the kubeconfig of Flotilla's manager: its ServiceAccount's, with the rights that it is installed with.
func (f *Fleet) writeManagerKubeconfig(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "flotilla-system", Name: "flotilla-manager"}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64((24 * time.Hour).Seconds()))}}
	if err := f.hub.client.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("asking for a token of the manager: %w", err)
	}
	config, err := clientcmd.LoadFromFile(f.kubeconfig("hub"))
	if err != nil {
		return fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token.Status.Token)}
	}
	return clientcmd.WriteToFile(*config, f.managerKubeconfig())
}
