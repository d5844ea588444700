// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testenv starts real control planes for tests: a kube-apiserver with its etcd and our CRDs, nothing else.
//
// There is no controller manager in them: nothing schedules, nothing collects garbage, and a deleted namespace stays
// Terminating. Tests keep apart by namespaces of their own. Cluster IPs are drawn from 2^24: the address of a deleted
// Service stays free until the test that deleted it asks for it again.
package testenv

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// patience is the default timeout of Eventually in packages with Main, and of waits here. Only a failing test waits that
// long, so it covers a busy machine, which Gomega's default of 1s does not.
const patience = time.Minute

// assetsVariable overrides where the binaries are; envtest reads it as well.
const assetsVariable = "KUBEBUILDER_ASSETS"

// Scheme knows the built-in kinds, ours and CustomResourceDefinition. All callers share it: a scheme costs 160 KiB.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	return scheme
})

// Cluster is a running API server.
type Cluster struct {
	// Config is that of an administrator, by client certificate.
	Config *rest.Config
	// Client reads and writes without a cache.
	Client client.Client

	env *envtest.Environment
	// dir is where the files of the API server are.
	dir string

	// joining makes the cluster a member, once.
	joining sync.Once
	asHub   *rest.Config
	joinErr error
}

// Start starts one API server with etcd and our CRDs, and stops it at the end of the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	cluster, err := start()
	if err != nil {
		t.Fatalf("starting a control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := cluster.stop(); err != nil {
			t.Errorf("stopping a control plane: %v", err)
		}
	})
	return cluster
}

// Main starts one API server for each pointer, side by side, runs the package's tests and stops them again. A package
// that shares its API servers between tests has:
//
//	var hub, member *testenv.Cluster
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &hub, &member)) }
//
// Eventually of Gomega gives up after a minute there, unless a test sets a timeout of its own.
//
// Fuzzing does without: its workers, each a process of its own, would start them again and again.
func Main(m *testing.M, clusters ...**Cluster) int {
	gomega.SetDefaultEventuallyTimeout(patience)
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return m.Run()
	}
	errs := make([]error, len(clusters))
	var starting sync.WaitGroup
	for i, target := range clusters {
		starting.Go(func() { *target, errs[i] = start() })
	}
	starting.Wait()
	defer func() {
		for _, target := range clusters {
			if *target == nil {
				continue
			}
			if err := (*target).stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping a control plane:", err)
			}
		}
	}()
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "starting control planes:", err)
		return 1
	}
	return m.Run()
}

// Kubeconfig returns a kubeconfig that refers to no file: server, CA data and client certificate data.
func (c *Cluster) Kubeconfig() []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server:                   c.Config.Host,
		CertificateAuthorityData: c.Config.CAData,
	}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.Config.CertData,
		ClientKeyData:         c.Config.KeyData,
	}
	config.Contexts["admin@cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "admin"}
	config.CurrentContext = "admin@cluster"
	raw, err := clientcmd.Write(*config)
	utilruntime.Must(err)
	return raw
}

// User returns the config of a new user, by client certificate. A user without groups has no rights.
func (c *Cluster) User(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, rest.CopyConfig(c.Config))
	if err != nil {
		t.Fatalf("adding user %q: %v", name, err)
	}
	return user.Config()
}

// Namespace creates a namespace with a unique name and returns the name.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.Client.Create(context.Background(), namespace); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	return namespace.Name
}

// Binary returns the path of a control-plane binary, such as kubectl.
func Binary(t testing.TB, name string) string {
	t.Helper()
	_, assets, err := folders()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(assets, name)
}

// folders returns the module's root and the folder of the control-plane binaries.
func folders() (root, assets string, err error) {
	if root, err = moduleRoot(); err != nil {
		return "", "", err
	}
	if assets = os.Getenv(assetsVariable); assets == "" {
		assets = filepath.Join(root, "bin")
	}
	return root, assets, nil
}

// start starts a control plane. It tries again, because etcd and the API server listen at ports that were free when they were
// chosen, and anything on the machine may have taken one meanwhile.
func start() (cluster *Cluster, err error) {
	for range 3 {
		if cluster, err = startOnce(); err == nil {
			return cluster, nil
		}
	}
	return nil, err
}

func startOnce() (*Cluster, error) {
	root, assets, err := folders()
	if err != nil {
		return nil, err
	}
	for _, binary := range []string{"kube-apiserver", "etcd"} {
		if _, err := os.Stat(filepath.Join(assets, binary)); err != nil {
			return nil, fmt.Errorf("no %s in %s: run \"make tools\" first", binary, assets)
		}
	}
	env := &envtest.Environment{
		Scheme:                Scheme(),
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		// Several start at once when packages are tested side by side, on a machine that may have few cores.
		ControlPlaneStartTimeout: 2 * time.Minute,
	}
	// Tests lose nothing in a power cut, and syncing to disk is most of what etcd does.
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true")

	// The default of envtest has 254 addresses for all the Services of a package.
	env.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/8")

	dir, err := os.MkdirTemp("", "flotilla-testenv-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	cluster := &Cluster{env: env, dir: dir}
	if err := cluster.audit(env.ControlPlane.GetAPIServer()); err != nil {
		return nil, errors.Join(err, cluster.stop())
	}
	if cluster.Config, err = env.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting kube-apiserver and etcd from %s: %w", assets, err), cluster.stop())
	}
	if cluster.Client, err = client.New(cluster.Config, client.Options{Scheme: Scheme()}); err != nil {
		return nil, errors.Join(fmt.Errorf("making a client: %w", err), cluster.stop())
	}
	return cluster, nil
}

func (c *Cluster) stop() error { return errors.Join(c.env.Stop(), os.RemoveAll(c.dir)) }

// moduleRoot walks up from the folder of the running test, which is that of its package, maybe of a module below ours.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "config", "crd", "bases")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the module root: no config/crd/bases above %s", start)
		}
	}
}
