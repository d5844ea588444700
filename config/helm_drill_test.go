// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package config

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// TestHelmDrill installs, upgrades, rolls back and uninstalls the chart with the program that people use.
func TestHelmDrill(t *testing.T) {
	h := newHelm(t)
	for _, step := range []struct {
		name string
		run  func(*helm, *testing.T)
	}{
		{"WhatIsWrongIsRefused", (*helm).refused},
		{"Install", (*helm).install},
		{"UpgradeWithoutTheNameOfTheHub", (*helm).upgradeWithoutName},
		{"UpgradeWithValues", (*helm).upgradeWithValues},
		{"UpgradeToTheNextVersion", (*helm).upgradeToNext},
		{"UpgradeAfterAChangeByHand", (*helm).upgradeAfterChange},
		{"Rollback", (*helm).rollback},
		{"NamespaceIsNoLongerCreated", (*helm).namespaceLeft},
		{"Uninstall", (*helm).uninstall},
		{"InstallUnderAnotherName", (*helm).installElsewhere},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(h, t) }) {
			t.Fatal("the steps build on each other")
		}
	}
}

// helm is a hub with a kubeconfig for Helm, and the chart in this and the next version.
type helm struct {
	*testenv.Cluster
	binary, chart, next string
	env                 []string
	// fleet are the UIDs of what an administrator has on the hub.
	fleet map[string]types.UID
}

func newHelm(t *testing.T) *helm {
	t.Helper()
	h := &helm{Cluster: testenv.Start(t), next: filepath.Join(t.TempDir(), "flotilla")}
	h.withoutSchemas(t)
	root, err := filepath.Abs("..")
	must(t, err)
	h.binary, h.chart = filepath.Join(root, "bin", "helm"), filepath.Join(root, "charts", "flotilla")
	home := t.TempDir()
	kubeconfig := filepath.Join(home, "kubeconfig")
	must(t, os.WriteFile(kubeconfig, h.Kubeconfig(), 0o600))
	h.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)

	// The next version has another image and another schema.
	must(t, os.CopyFS(h.next, os.DirFS(h.chart)))
	edit := func(file string, pairs ...string) {
		path := filepath.Join(h.next, file)
		content, err := os.ReadFile(path)
		must(t, err)
		edited := strings.NewReplacer(pairs...).Replace(string(content))
		if edited == string(content) {
			t.Fatalf("%s does not have %v", file, pairs)
		}
		must(t, os.WriteFile(path, []byte(edited), 0o600))
	}
	edit("Chart.yaml", "version: 0.1.0", "version: 0.2.0", "appVersion: v0.1.0", "appVersion: v0.2.0")
	edit("templates/install.yaml", "    flotilla.dev/crd-revision: ", "    flotilla.dev/crd-revision: \"99\" # ")
	return h
}

// withoutSchemas deletes the schemas, which the chart brings.
func (h *helm) withoutSchemas(t *testing.T) {
	t.Helper()
	for _, name := range []string{"memberclusters", "nodepools", "redises"} {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name + ".flotilla.dev"}}
		must(t, h.Client.Delete(t.Context(), definition))
		must(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(h.Client.Get(ctx, client.ObjectKeyFromObject(definition), definition)), nil
		}))
	}
}

// run runs Helm.
func (h *helm) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), h.binary, args...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	t.Logf("$ helm %s\n%s", strings.Join(args, " "), out)
	return string(out), err
}

// must runs Helm and expects that it succeeds.
func (h *helm) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.run(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// fails runs Helm and expects that it fails with this text.
func (h *helm) fails(t *testing.T, want string, args ...string) {
	t.Helper()
	if out, err := h.run(t, args...); err == nil || !strings.Contains(out, want) {
		t.Errorf("helm %s: %v, and it lacks %q:\n%s", strings.Join(args, " "), err, want, out)
	}
}

// deployment reads the manager's Deployment.
func (h *helm) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	found := &appsv1.Deployment{}
	must(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: flotillav1.SystemNamespace, Name: "flotilla-manager"}, found))
	return found
}

// expect compares the Deployment with what the values say.
func (h *helm) expect(t *testing.T, replicas int32, image string) {
	t.Helper()
	got := h.deployment(t)
	container := got.Spec.Template.Spec.Containers[0]
	if *got.Spec.Replicas != replicas || container.Image != image || container.Args[0] != "--hub-id=prod" {
		t.Errorf("the Deployment has %d replicas, image %s, arguments %v; want %d, %s", *got.Spec.Replicas, container.Image, container.Args, replicas, image)
	}
}

// revision reads the revision of a schema.
func (h *helm) revision(t *testing.T) string {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	must(t, h.Client.Get(t.Context(), client.ObjectKey{Name: "redises.flotilla.dev"}, definition))
	return definition.Annotations[flotillav1.AnnotationCRDRevision]
}

// keepsTheFleet expects that what an administrator has on the hub is there, and the same.
func (h *helm) keepsTheFleet(t *testing.T) {
	t.Helper()
	for _, object := range fleetOnHub() {
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || object.GetUID() != h.fleet[object.GetName()] {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
}

func fleetOnHub() []client.Object {
	return []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.RegistrationNamespace, Name: "eu-1", Labels: map[string]string{flotillav1.LabelCluster: "true"}}},
		&flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1-member"}, Spec: flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: flotillav1.RegistrationNamespace, Name: "eu-1"}}},
		&flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cache"}, Spec: flotillav1.RedisSpec{Placement: &flotillav1.Placement{Clusters: []string{"eu-1"}}}},
	}
}

const ourImage = "registry.example.com/flotilla-manager:v0.1.0"

func (h *helm) refused(t *testing.T) {
	h.fails(t, "hubID is the name of this hub", "install", "flotilla", h.chart)
	h.fails(t, "hubId", "install", "flotilla", h.chart, "--set", "hubId=prod")
	h.fails(t, "replicas", "install", "flotilla", h.chart, "--set", "hubID=prod,replicas=two")
}

func (h *helm) install(t *testing.T) {
	out := h.must(t, "install", "flotilla", h.chart, "--set", "hubID=prod", "--set", "image.repository=registry.example.com/flotilla-manager")
	if !strings.Contains(out, "kubectl flotilla register") {
		t.Errorf("it does not say what comes next:\n%s", out)
	}
	h.expect(t, 2, ourImage)
	h.fleet = map[string]types.UID{}
	for _, object := range fleetOnHub() {
		must(t, h.Client.Create(t.Context(), object))
		h.fleet[object.GetName()] = object.GetUID()
	}
}

// upgradeWithoutName does what would rename the hub: Helm goes back to the chart's values.
func (h *helm) upgradeWithoutName(t *testing.T) {
	h.fails(t, "hubID is the name of this hub", "upgrade", "flotilla", h.chart, "--set", "replicas=0")
	h.expect(t, 2, ourImage)
}

func (h *helm) upgradeWithValues(t *testing.T) {
	h.must(t, "upgrade", "flotilla", h.chart, "--reuse-values", "--set", "replicas=3")
	h.expect(t, 3, ourImage)
	h.keepsTheFleet(t)
}

func (h *helm) upgradeToNext(t *testing.T) {
	h.must(t, "upgrade", "flotilla", h.next, "--reuse-values")
	h.expect(t, 3, "registry.example.com/flotilla-manager:v0.2.0")
	if got := h.revision(t); got != "99" {
		t.Errorf("the schema has revision %s", got)
	}
	h.keepsTheFleet(t)
}

// upgradeAfterChange goes back by hand, as docs/operations.md says, and upgrades after that.
func (h *helm) upgradeAfterChange(t *testing.T) {
	deployment := h.deployment(t)
	before := deployment.DeepCopy()
	deployment.Spec.Template.Spec.Containers[0].Image = ourImage
	must(t, h.Client.Patch(t.Context(), deployment, client.MergeFrom(before), client.FieldOwner("kubectl-set")))
	h.must(t, "upgrade", "flotilla", h.next, "--reuse-values", "--set", "replicas=2")
	h.expect(t, 2, "registry.example.com/flotilla-manager:v0.2.0")
}

func (h *helm) rollback(t *testing.T) {
	h.must(t, "rollback", "flotilla", "2")
	h.expect(t, 3, ourImage)
	if got := h.revision(t); got == "99" {
		t.Error("the schema is that of the next version, although a rollback restores templates")
	}
	h.keepsTheFleet(t)
}

// namespaceLeft takes a namespace out of the release, in which everything is.
func (h *helm) namespaceLeft(t *testing.T) {
	h.must(t, "upgrade", "flotilla", h.chart, "--reuse-values", "--set", "createNamespace=false")
	namespace := &corev1.Namespace{}
	must(t, h.Client.Get(t.Context(), client.ObjectKey{Name: flotillav1.SystemNamespace}, namespace))
	if namespace.DeletionTimestamp != nil {
		t.Error("the namespace of the manager is being deleted")
	}
	h.expect(t, 3, ourImage)
}

func (h *helm) uninstall(t *testing.T) {
	h.must(t, "uninstall", "flotilla")
	for _, gone := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.SystemNamespace, Name: "flotilla-manager"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "flotilla-manager"}},
	} {
		if err := h.Client.Get(context.Background(), client.ObjectKeyFromObject(gone), gone); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is there (%v)", gone, gone.GetName(), err)
		}
	}
	h.keepsTheFleet(t)
}

// installElsewhere takes up what an earlier release has left, under another name and from another namespace.
func (h *helm) installElsewhere(t *testing.T) {
	values := []string{"fleet", h.chart, "--namespace", "default", "--set", "hubID=prod", "--set", "image.repository=registry.example.com/flotilla-manager"}
	h.fails(t, "cannot be imported into the current release", append([]string{"install"}, values...)...)
	h.must(t, append([]string{"install", "--take-ownership"}, values...)...)
	h.expect(t, 2, ourImage)
	h.keepsTheFleet(t)
}
