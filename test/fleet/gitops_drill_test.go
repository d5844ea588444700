// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestGitOpsDrill has Flux's kustomize-controller apply registrations and objects to the hub of a fleet.
func TestGitOpsDrill(t *testing.T) {
	f := start(t, 1)
	flux := f.startFlux(t)
	for _, s := range []scenario{
		{"RegistrationFromGit", flux.registration},
		{"ObjectsFromGit", flux.objects},
		{"NothingIsWrittenWhenNothingChanges", flux.quiet},
		{"DriftIsUndone", flux.drift},
		{"WhatPeopleAskForStays", flux.people},
		{"BadSpecIsShown", flux.badSpec},
		{"WhatOnlyAPersonCanMendFailsAtOnce", flux.stalled},
		{"ChangeGoesInWaves", flux.waves},
		{"Pruned", flux.prune},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.run(t, f) }) {
			f.tellState(t)
			t.Fatalf("%s failed; the scenarios after it build on it", s.name)
		}
	}
}

// fluxInterval is how often Flux applies what is in Git although nothing has changed.
const fluxInterval = 5 * time.Second

// flux is a kustomize-controller, and a repository with a folder for each Kustomization. The drill serves the artifacts, as
// sources of third parties do.
type flux struct {
	*fleet
	url string

	mu        sync.Mutex // Guards artifacts.
	artifacts map[string][]byte
	files     map[string]map[string]string
	commits   int
}

// startFlux starts the controller on the hub and makes both Kustomizations.
func (f *fleet) startFlux(t *testing.T) *flux {
	t.Helper()
	x := &flux{fleet: f, artifacts: map[string][]byte{}, files: map[string]map[string]string{"members": {}, "apps": {}}}
	server := httptest.NewServer(http.HandlerFunc(x.serve))
	t.Cleanup(server.Close)
	x.url = server.URL
	for _, module := range []string{"kustomize-controller", "source-controller"} {
		dir := strings.TrimSpace(f.command(t, "go", "-C", "hack/flux", "list", "-m", "-f", "{{.Dir}}", "github.com/fluxcd/"+module))
		f.kubectl(t, "hub", "apply", "--server-side", "-f", filepath.Join(dir, "config", "crd", "bases"))
	}
	f.kubectl(t, "hub", "create", "namespace", "flux-system")
	log, err := os.Create(filepath.Join(f.dir, "flux.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(f.root, "bin", "kustomize-controller"), "--feature-gates=ExternalArtifact=true", "--metrics-addr=0",
		"--health-addr=127.0.0.1:0", "--interval-jitter-percentage=0", "--requeue-dependency=2s", "--log-level=debug")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(f.dir, "kubeconfigs", "hub"), "RUNTIME_NAMESPACE=flux-system")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			content, _ := os.ReadFile(log.Name())
			t.Logf("Flux says:\n%s", content[max(0, len(content)-8000):])
		}
	})
	return x
}

// serve serves an artifact.
func (x *flux) serve(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	content, found := x.artifacts[r.URL.Path]
	x.mu.Unlock()
	if !found {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(content)
}

// commit puts the files of a folder into an artifact, and tells Flux.
func (x *flux) commit(t *testing.T, folder string) {
	t.Helper()
	g := NewWithT(t)
	x.commits++
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(x.files[folder])) {
		content := x.files[folder][name]
		g.Expect(archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})).To(Succeed())
		_, err := archive.Write([]byte(content))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(archive.Close()).To(Succeed())
	g.Expect(zipped.Close()).To(Succeed())
	path := fmt.Sprintf("/%s/%d.tar.gz", folder, x.commits)
	x.mu.Lock()
	x.artifacts[path] = packed.Bytes()
	x.mu.Unlock()

	source := x.object("source.toolkit.fluxcd.io/v1", "ExternalArtifact", folder)
	source.Object["spec"] = map[string]any{}
	g.Expect(client.IgnoreAlreadyExists(x.hub.Create(x.ctx, source))).To(Succeed())
	g.Expect(x.hub.Get(x.ctx, client.ObjectKeyFromObject(source), source)).To(Succeed())
	now := metav1.Now().UTC().Format(time.RFC3339)
	source.Object["status"] = map[string]any{
		"artifact": map[string]any{
			"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(packed.Bytes())), "lastUpdateTime": now, "path": path,
			"revision": x.revision(), "size": int64(packed.Len()), "url": x.url + path,
		},
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored", "lastTransitionTime": now}},
	}
	g.Expect(x.hub.Status().Update(x.ctx, source)).To(Succeed())
	x.kustomization(t, folder)
}

// revision names the last commit.
func (x *flux) revision() string { return fmt.Sprintf("main@sha1:%040d", x.commits) }

func (x *flux) object(version, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(version)
	object.SetKind(kind)
	object.SetNamespace("flux-system")
	object.SetName(name)
	return object
}

// kustomization makes the Kustomization of a folder, unless it is there.
func (x *flux) kustomization(t *testing.T, folder string) {
	t.Helper()
	object := x.object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", folder)
	spec := map[string]any{
		"interval": fluxInterval.String(), "retryInterval": "3s", "timeout": "40s", "prune": true, "path": "./",
		"sourceRef": map[string]any{"kind": "ExternalArtifact", "name": folder},
	}
	if folder == "apps" {
		spec["wait"] = true
		maps.Copy(spec, x.documentedChecks(t))
	} else {
		spec["healthChecks"] = []any{map[string]any{"apiVersion": flotillav1.GroupVersion.String(), "kind": "MemberCluster", "name": "member-2"}}
	}
	object.Object["spec"] = spec
	if err := client.IgnoreAlreadyExists(x.hub.Create(x.ctx, object)); err != nil {
		t.Fatal(err)
	}
}

// documentedChecks returns the health checks that docs/install.md has for Flux.
func (x *flux) documentedChecks(t *testing.T) map[string]any {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(x.root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Flux\n")
	checks := map[string]any{}
	if err := yaml.Unmarshal([]byte(fenced(section, "```yaml\n")[0]), &checks); err != nil || checks["healthCheckExprs"] == nil {
		t.Fatalf("the page has %v (%v)", checks, err)
	}
	return checks
}

// ready returns condition Ready of a Kustomization, if that is about the last commit: "True ReconciliationSucceeded: ...".
func (x *flux) ready(folder string) func() string {
	return func() string {
		object := x.object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", folder)
		if err := x.hub.Get(x.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err.Error()
		}
		if attempted, _, _ := unstructured.NestedString(object.Object, "status", "lastAttemptedRevision"); attempted != x.revision() {
			return "not attempted"
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, entry := range conditions {
			if c := entry.(map[string]any); c["type"] == "Ready" {
				return fmt.Sprint(c["status"], " ", c["reason"], ": ", c["message"])
			}
		}
		return "no condition"
	}
}

// synced waits until Flux has applied the present files once more.
func (x *flux) synced(t *testing.T, folder string) {
	t.Helper()
	applied := func() string {
		object := x.object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", folder)
		_ = x.hub.Get(x.ctx, client.ObjectKeyFromObject(object), object)
		at, _, _ := unstructured.NestedString(object.Object, "status", "lastHandledReconcileAt")
		return at
	}
	asked := time.Now().UTC().Format(time.RFC3339Nano)
	x.kubectl(t, "hub", "annotate", "--overwrite", "-n", "flux-system", "kustomization", folder, "reconcile.fluxcd.io/requestedAt="+asked)
	NewWithT(t).Eventually(applied, time.Minute, 200*time.Millisecond).Should(Equal(asked))
}

// fluxRedis is the Redis in Git.
const fluxRedis = `apiVersion: flotilla.dev/v1alpha1
kind: Redis
metadata: {name: git, namespace: apps}
spec:
  replicas: 2
  image: redis:8.2
  placement:
    clusters: [member-1, member-2]
    rollout: {progressDeadlineSeconds: 60}
`

func (x *flux) redis() *flotillav1.Redis {
	redis := &flotillav1.Redis{}
	_ = x.hub.Get(x.ctx, client.ObjectKey{Namespace: "apps", Name: "git"}, redis)
	return redis
}

// placed returns the copy in a member.
func (x *flux) placed(member string) *flotillav1.Redis {
	redis := &flotillav1.Redis{}
	_ = x.members[member].Get(x.ctx, client.ObjectKey{Namespace: "apps", Name: "git"}, redis)
	return redis
}

func (x *flux) registration(t *testing.T, f *fleet) {
	g := NewWithT(t)
	f.prepareMember(t, "member-2")
	secret := f.fleetRegistration(t, "member-2")
	x.files["members"]["member-2.yaml"] = secret
	x.commit(t, "members")
	g.Eventually(x.ready("members"), 2*time.Minute, 500*time.Millisecond).Should(HavePrefix("True"))
	g.Expect(conditionStatus(f.memberCluster("member-2").Status.Conditions, "Ready")).To(Equal("True"), "Flux is done when the hub works with the member")
}

// fleetRegistration is a registration as a file in Git.
func (f *fleet) fleetRegistration(t *testing.T, name string) string {
	t.Helper()
	secret := f.registration(t, name, map[string]string{"region": "us"})
	secret.APIVersion, secret.Kind = "v1", "Secret"
	content, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	content, err = yaml.JSONToYAML(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func (x *flux) objects(t *testing.T, _ *fleet) {
	g := NewWithT(t)
	x.files["apps"]["namespace.yaml"] = "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps}\n"
	x.files["apps"]["redis.yaml"] = fluxRedis
	x.commit(t, "apps")
	g.Eventually(x.ready("apps"), 3*time.Minute, 500*time.Millisecond).Should(HavePrefix("True"))
	g.Expect(conditionStatus(x.redis().Status.Conditions, "Ready")).To(Equal("True"), "Flux is done when the copies are ready")
	for _, member := range []string{"member-1", "member-2"} {
		g.Expect(x.placed(member).Spec.Image).To(Equal("redis:8.2"), member)
	}
}

// quiet has Flux apply the same several times, which must change no object.
func (x *flux) quiet(t *testing.T, _ *fleet) {
	g := NewWithT(t)
	versions := func() string {
		return fmt.Sprint(x.redis().ResourceVersion, x.placed("member-1").Generation, x.memberCluster("member-2").Generation)
	}
	g.Eventually(func() bool {
		before := versions()
		x.synced(t, "apps")
		return versions() == before
	}, time.Minute, time.Second).Should(BeTrue(), "things settle")
	before := versions()
	for range 3 {
		x.synced(t, "apps")
		x.synced(t, "members")
	}
	g.Expect(versions()).To(Equal(before))
}

func (x *flux) drift(t *testing.T, _ *fleet) {
	g := NewWithT(t)
	x.kubectl(t, "hub", "scale", "redis", "-n", "apps", "git", "--replicas=3")
	g.Eventually(func() int32 { return *x.redis().Spec.Replicas }, time.Minute, 200*time.Millisecond).Should(Equal(int32(2)))
}

// people asks for what the pages tell people to ask for, on objects that are in Git.
func (x *flux) people(t *testing.T, f *fleet) {
	g := NewWithT(t)
	try := func(args ...string) string {
		cmd := exec.CommandContext(f.ctx, filepath.Join(f.root, "bin", "kubectl"), append([]string{"--kubeconfig", filepath.Join(f.dir, "kubeconfigs", "hub")}, args...)...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("kubectl %v is not refused", args)
		}
		return string(out)
	}
	g.Expect(try("annotate", "secret", "-n", "flotilla-clusters", "member-2", "flotilla.dev/drain=true")).To(ContainSubstring("on the MemberCluster, as kubectl flotilla pause and drain do"))
	g.Expect(try("annotate", "redis", "-n", "apps", "git", "flotilla.dev/confirm-removal=1")).To(ContainSubstring("in Git, or pass --field-manager=flotilla-cli"))

	plugin := filepath.Join(f.dir, "kubectl-flotilla")
	hub := []string{"--kubeconfig", filepath.Join(f.dir, "kubeconfigs", "hub")}
	f.command(t, plugin, append(hub, "pause", "member-2")...)
	f.kubectl(t, "hub", "annotate", "redis", "-n", "apps", "git", "--field-manager=flotilla-cli", "flotilla.dev/confirm-recreated=member-1", "example.com/by=cli")
	f.kubectl(t, "hub", "annotate", "redis", "-n", "apps", "git", "example.com/note=kubectl")
	for range 2 {
		x.synced(t, "apps")
		x.synced(t, "members")
	}
	g.Expect(x.redis().Annotations).NotTo(HaveKey("example.com/note"), "Flux takes back what kubectl writes")
	g.Expect(x.redis().Annotations).To(HaveKeyWithValue("example.com/by", "cli"))
	g.Expect(conditionStatus(f.memberCluster("member-2").Status.Conditions, "Paused")).To(Equal("True"))
	f.command(t, plugin, append(hub, "resume", "member-2")...)
	g.Eventually(func() string { return conditionStatus(f.memberCluster("member-2").Status.Conditions, "Paused") }, time.Minute, 200*time.Millisecond).ShouldNot(Equal("True"))
}

func (x *flux) badSpec(t *testing.T, _ *fleet) {
	g := NewWithT(t)
	for bad, want := range map[string]string{"replicas: 99": "spec.replicas", "replicsa: 2": "replicsa"} {
		x.files["apps"]["redis.yaml"] = strings.Replace(fluxRedis, "replicas: 2", bad, 1)
		x.commit(t, "apps")
		g.Eventually(x.ready("apps"), time.Minute, 200*time.Millisecond).Should(And(HavePrefix("False"), ContainSubstring(want)))
		t.Logf("%s: %s", bad, x.ready("apps")())
	}
	g.Expect(*x.redis().Spec.Replicas).To(Equal(int32(2)))
}

// stalled commits an override that the schema cannot check.
func (x *flux) stalled(t *testing.T, _ *fleet) {
	g := NewWithT(t)
	x.files["apps"]["redis.yaml"] = fluxRedis + "    overrides:\n    - clusters: [member-2]\n      patch: {replicsa: 1}\n"
	began := time.Now()
	x.commit(t, "apps")
	g.Eventually(x.ready("apps"), time.Minute, 200*time.Millisecond).Should(And(HavePrefix("False"), ContainSubstring("stalled"), ContainSubstring("Redis/apps/git")))
	t.Logf("after %s: %s", time.Since(began).Round(time.Second), x.ready("apps")())
	g.Expect(time.Since(began)).To(BeNumerically("<", 35*time.Second), "it is not the timeout of the Kustomization")
}

// waves changes the image, and has the second member wait for the first.
func (x *flux) waves(t *testing.T, _ *fleet) {
	g := NewWithT(t)
	x.files["apps"]["redis.yaml"] = strings.Replace(fluxRedis, "redis:8.2", "redis:8.4", 1)
	x.commit(t, "apps")
	images := func() []string { return []string{x.placed("member-1").Spec.Image, x.placed("member-2").Spec.Image} }
	mixed := false
	g.Eventually(func() bool {
		now := images()
		mixed = mixed || now[0] != now[1]
		if x.ready("apps")() == "not attempted" || !strings.HasPrefix(x.ready("apps")(), "True") {
			return false
		}
		g.Expect(images()).To(Equal([]string{"redis:8.4", "redis:8.4"}), "Flux is done when both have it")
		return true
	}, 4*time.Minute, 100*time.Millisecond).Should(BeTrue())
	g.Expect(mixed).To(BeTrue(), "one member had the change before the other")
}

func (x *flux) prune(t *testing.T, f *fleet) {
	g := NewWithT(t)
	delete(x.files["apps"], "redis.yaml")
	x.commit(t, "apps")
	for _, member := range []string{"member-1", "member-2"} {
		g.Eventually(func() string { return x.placed(member).Name }, 2*time.Minute, 500*time.Millisecond).Should(BeEmpty(), member)
	}
	g.Eventually(x.ready("apps"), time.Minute, 500*time.Millisecond).Should(HavePrefix("True"))
	x.files["members"] = map[string]string{"namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: from-git}\n"}
	x.commit(t, "members")
	g.Eventually(func() string { return f.memberCluster("member-2").Name }, 2*time.Minute, 500*time.Millisecond).Should(BeEmpty())
}
