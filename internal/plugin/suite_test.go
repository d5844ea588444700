// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// hubID is the id of the hub in tests, and patience how long something may take that takes seconds.
const (
	hubID    = "hub"
	patience = 60 * time.Second
)

var (
	update              = flag.Bool("update", false, "write what the commands print into docs/kubectl-flotilla.md")
	hubServer, eu1, us1 *testenv.Cluster
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &hubServer, &eu1, &us1)) }

// world is a hub with its manager and a kubeconfig that has contexts for everything.
type world struct {
	t          *testing.T
	kubeconfig string
	// answers are what is typed, line by line.
	answers []string
}

// newWorld writes the kubeconfig and makes the namespaces that config/hub makes.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	config := clientcmdapi.NewConfig()
	add := func(name string, from *rest.Config) {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: from.Host, CertificateAuthorityData: from.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: from.CertData, ClientKeyData: from.KeyData, Token: from.BearerToken}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	add("hub", hubServer.Config)
	add("eu-1-admin", eu1.Config)
	add("us-1-admin", us1.Config)
	add("nobody", us1.User(t, "nobody"))
	add("viewer", userWith(t, us1, "viewer",
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}))
	add("halfway", userWith(t, us1, "halfway",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "serviceaccounts", "secrets"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: everythingBesides, Resources: []string{"*"}, Verbs: []string{"*"}}))
	add("expired", &rest.Config{Host: us1.Config.Host, BearerToken: "ended", TLSClientConfig: rest.TLSClientConfig{CAData: us1.Config.CAData}})
	unreachable := testenv.NewLine(t, us1.Config.Host)
	unreachable.Refuse()
	add("unreachable", &rest.Config{Host: "https://" + unreachable.Addr(), BearerToken: "any", TLSClientConfig: us1.Config.TLSClientConfig})
	config.CurrentContext = "hub"
	if err := clientcmd.WriteToFile(*config, w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{flotillav1.SystemNamespace, flotillav1.RegistrationNamespace} {
		ensure(t, hubServer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

// everythingBesides are the groups of what register writes besides the core's.
var everythingBesides = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", flotillav1.GroupVersion.Group, rbacv1.GroupName,
}

// userWith makes a user of a cluster who has these rights.
func userWith(t *testing.T, cluster *testenv.Cluster, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	ensure(t, cluster, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	ensure(t, cluster, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	return cluster.User(t, name)
}

// ensure creates an object unless it is there.
func ensure(t *testing.T, cluster *testenv.Cluster, object client.Object) {
	t.Helper()
	if err := cluster.Client.Create(context.Background(), object); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

// managerBinary returns the path of the manager. MANAGER_ID is the build ID of bin/manager, set by `make test`. Reading it lets
// go test know that a cached result is out of date once the manager has changed. Without it, the manager is built here.
func managerBinary(t *testing.T) string {
	t.Helper()
	if os.Getenv("MANAGER_ID") != "" {
		return filepath.Join("..", "..", "bin", "manager")
	}
	binary := filepath.Join(t.TempDir(), "manager")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "../../cmd/manager")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the manager: %v\n%s", err, out)
	}
	return binary
}

// startManager runs the whole manager as a process until the test ends.
func (w *world) startManager() {
	w.t.Helper()
	binary := managerBinary(w.t)
	var log bytes.Buffer
	manager := exec.Command(binary, "--kubeconfig", w.kubeconfig, "--hub-id", hubID, "--registration-grace-seconds", "2",
		"--metrics-bind-address=0", "--health-bind-address=0")
	manager.Stdout, manager.Stderr = &log, &log
	if err := manager.Start(); err != nil {
		w.t.Fatalf("starting the manager: %v", err)
	}
	w.t.Cleanup(func() {
		_ = manager.Process.Signal(syscall.SIGTERM)
		_ = manager.Wait()
		if w.t.Failed() {
			w.t.Logf("the manager's log:\n%s", log.String())
		}
	})
}

// result is what a command has done.
type result struct {
	// shown is what a terminal shows: both outputs, and what is typed.
	out, err, shown string
	code            int
}

// run runs the plugin as a shell would.
func (w *world) run(args ...string) result {
	w.t.Helper()
	var out, errOut bytes.Buffer
	shown := &screen{}
	code := w.runInto(context.Background(), &typist{w, shown}, io.MultiWriter(&out, shown), io.MultiWriter(&errOut, shown), args...)
	return result{out: out.String(), err: errOut.String(), shown: shown.String(), code: code}
}

func (w *world) runInto(ctx context.Context, in io.Reader, out, errOut io.Writer, args ...string) int {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return Run(ctx, "kubectl-flotilla test", append([]string{"--kubeconfig", w.kubeconfig}, args...), genericiooptions.IOStreams{In: in, Out: out, ErrOut: errOut})
}

// typist types the answers, and the terminal shows them.
type typist struct {
	*world
	shown io.Writer
}

// Read implements io.Reader, a line at a time.
func (a *typist) Read(into []byte) (int, error) {
	if len(a.answers) == 0 {
		return 0, io.EOF
	}
	n := copy(into, a.answers[0])
	_, _ = io.WriteString(a.shown, a.answers[0][:n])
	if a.answers[0] = a.answers[0][n:]; a.answers[0] == "" {
		a.answers = a.answers[1:]
	}
	return n, nil
}

// screen is what a command that goes on has printed so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

// String returns it.
func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// must runs a command that is to succeed.
func (w *world) must(args ...string) result {
	w.t.Helper()
	got := w.run(args...)
	if got.code != 0 {
		w.t.Fatalf("kubectl flotilla %s: exit code %d\n%s%s", strings.Join(args, " "), got.code, got.out, got.err)
	}
	return got
}

// fails runs a command that is to fail with these texts in its last line.
func (w *world) fails(want []string, args ...string) result {
	w.t.Helper()
	got := w.run(args...)
	if got.code == 0 {
		w.t.Errorf("kubectl flotilla %s: exit code 0\n%s%s", strings.Join(args, " "), got.out, got.err)
	}
	lines := strings.Split(strings.TrimSpace(got.err), "\n")
	last := lines[len(lines)-1]
	for _, text := range append(want, "error: ", "; ") {
		if !strings.Contains(last, text) {
			w.t.Errorf("kubectl flotilla %s ends with\n%s\nwhich lacks %q", strings.Join(args, " "), last, text)
		}
	}
	return got
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func() (bool, error)) {
	w.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		var ok bool
		ok, last = holds()
		return ok, nil
	})
	if err != nil {
		w.t.Fatalf("%s: not within %s (%v)", what, patience, last)
	}
}

// member reads a MemberCluster.
func (w *world) member(name string) *flotillav1.MemberCluster {
	w.t.Helper()
	member := &flotillav1.MemberCluster{}
	if err := hubServer.Client.Get(context.Background(), client.ObjectKey{Name: name}, member); err != nil {
		w.t.Fatal(err)
	}
	return member
}

// credentials returns the credentials of a registration in a member.
func credentials(t *testing.T, cluster *testenv.Cluster, name string) []corev1.Secret {
	t.Helper()
	found := &corev1.SecretList{}
	if err := cluster.Client.List(context.Background(), found, client.InNamespace(flotillav1.SystemNamespace), client.MatchingLabels{"flotilla.dev/hub-credential": "true"}); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(found.Items, func(secret corev1.Secret) bool { return secret.Annotations[flotillav1.AnnotationClusterName] != name })
}

// inventory lists what of the hub's access is in a member.
func inventory(t *testing.T, cluster *testenv.Cluster) []string {
	t.Helper()
	objects, err := manifests.Member()
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, object := range objects {
		if !manifests.IsRights(object) {
			continue
		}
		seen := &unstructured.Unstructured{}
		seen.SetGroupVersionKind(object.GroupVersionKind())
		err := cluster.Client.Get(context.Background(), client.ObjectKeyFromObject(object), seen)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err == nil {
			there = append(there, console.Describe(object))
		}
	}
	secrets := &corev1.SecretList{}
	if err := cluster.Client.List(context.Background(), secrets, client.InNamespace(flotillav1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		there = append(there, "Secret "+secrets.Items[i].Name)
	}
	return there
}

// wantNothing expects that a failed registration has left nothing behind.
func (w *world) wantNothing(name string, member *testenv.Cluster) {
	w.t.Helper()
	secret := &corev1.Secret{}
	err := hubServer.Client.Get(context.Background(), client.ObjectKey{Namespace: flotillav1.RegistrationNamespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil || err == nil {
		w.t.Errorf("the registration of %q is there (%v)", name, err)
	}
	if there := inventory(w.t, member); len(there) > 0 {
		w.t.Errorf("the member has %s", strings.Join(there, ", "))
	}
}

// document is the page that shows what commands print.
var document = filepath.Join("..", "..", "docs", "kubectl-flotilla.md")

// show compares what a command has printed with the page, or writes it there with -update. In the page,
//
//	<!-- output: NAME -->
//
// stands before the block.
func show(t *testing.T, name, command string, got result) {
	t.Helper()
	page, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)(<!-- output: " + regexp.QuoteMeta(name) + " -->\n```console\n)(.*?)(```\n)")
	parts := block.FindSubmatch(page)
	if parts == nil {
		t.Fatalf("%s has no block <!-- output: %s --> with ```console after it", document, name)
	}
	text := "$ kubectl flotilla " + command + "\n" + normal(got.shown)
	if *update {
		fresh := append(append(append([]byte{}, parts[1]...), text...), parts[3]...)
		if err := os.WriteFile(document, bytes.Replace(page, parts[0], fresh, 1), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(parts[2]), text); diff != "" {
		t.Errorf("%s differs at %q (-page +now); run this test with -update if that is meant:\n%s", document, name, diff)
	}
}

// normalised is what differs from run to run, and what stands for it.
var normalised = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`(?m)^  … .*\n`), ""},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2027-11-21T12:00:00Z"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "10.0.0.1:6443"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "6f1c8e0a-7b43-4c1e-9a52-0d3f5b7e9c11"},
	{regexp.MustCompile(`flotilla-hub-token-[a-z0-9]{5}`), "flotilla-hub-token-x7k2p"},
	{regexp.MustCompile(`v1\.\d+\.\d+[-+.0-9a-z]*`), "v1.36.0"},
	{regexp.MustCompile(`\b(364d|365d)\b`), "365d"},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// passed is how long something has been so. In a column its room is kept.
var passed = regexp.MustCompile(`\b(?:\d+m)?\d{1,3}[sm]\b *`)

// ago is the first column of a table of events. It is as wide as the longest time in it.
var ago = regexp.MustCompile(`(?m)^(AGO|(?:\d+m)?\d{1,3}[sm])  +`)

// normal replaces what differs from run to run.
func normal(text string) string {
	for _, rule := range normalised {
		text = rule.from.ReplaceAllString(text, rule.to)
	}
	text = ago.ReplaceAllStringFunc(text, func(match string) string {
		if strings.HasPrefix(match, "AGO") {
			return "AGO   "
		}
		return "12s   "
	})
	return passed.ReplaceAllStringFunc(text, func(match string) string {
		if room := len(match) - len("12s"); strings.HasSuffix(match, "  ") && room > 0 {
			return "12s" + strings.Repeat(" ", room)
		}
		return "12s" + strings.Repeat(" ", strings.Count(match, " "))
	})
}
