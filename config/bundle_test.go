// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// The two files that people install.
const (
	hubBundle    = "dist/install.yaml"
	memberBundle = "dist/member.yaml"
)

var hub, member *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &hub, &member)) }

// objectsIn reads the objects of a file in its order.
func objectsIn(t testing.TB, path string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := testenv.Objects(path)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// install applies a file as kubectl apply --server-side does.
func install(t testing.TB, cluster *testenv.Cluster, path string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := cluster.Apply(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// decode turns an object into its Go type.
func decode[T any](t testing.TB, object *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		t.Fatalf("reading %s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

func TestBundles_apply_and_apply_again_without_a_change(t *testing.T) {
	for path, cluster := range map[string]*testenv.Cluster{hubBundle: hub, memberBundle: member} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			versions := map[string]string{}
			for _, object := range install(t, cluster, path) {
				versions[object.GetKind()+" "+object.GetName()] = stored(t, cluster, object)
			}
			for _, object := range install(t, cluster, path) {
				name := object.GetKind() + " " + object.GetName()
				if again := stored(t, cluster, object); again != versions[name] {
					t.Errorf("%s was %s, and is %s after the same file was applied again", name, versions[name], again)
				}
			}
		})
	}
}

// TestBundles_can_have_several_appliers applies the files under another name, without force, as when kubectl upgrades what
// kubectl flotilla or a GitOps tool installed. What a file leaves to the defaults of an API server in a map that is applied
// as a whole would be a conflict.
func TestBundles_can_have_several_appliers(t *testing.T) {
	for path, cluster := range map[string]*testenv.Cluster{hubBundle: hub, memberBundle: member} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			install(t, cluster, path)
			for _, object := range objectsIn(t, path) {
				err := cluster.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("somebody-else"), client.DryRunAll)
				if err != nil {
					t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
				}
			}
		})
	}
}

// stored is an object as the cluster has it, without what the API server itself writes now and then: the status of a
// definition or a policy, and with it the version.
func stored(t testing.TB, cluster *testenv.Cluster, object *unstructured.Unstructured) string {
	t.Helper()
	live := object.DeepCopy()
	if err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(object), live); err != nil {
		t.Fatal(err)
	}
	live.SetManagedFields(nil)
	live.SetResourceVersion("")
	unstructured.RemoveNestedField(live.Object, "status")
	content, err := live.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestBundles_keep_definitions looks for what keeps Helm, Argo CD and Flux from deleting what everything hangs on.
func TestBundles_keep_definitions(t *testing.T) {
	want := map[string]string{
		"argocd.argoproj.io/sync-options":   "Prune=false",
		"helm.sh/resource-policy":           "keep",
		"kustomize.toolkit.fluxcd.io/prune": "disabled",
	}
	kept := map[string][]string{}
	for _, path := range []string{hubBundle, memberBundle} {
		for _, object := range objectsIn(t, path) {
			if object.GetKind() != "CustomResourceDefinition" && object.GetName() != "flotilla-clusters" {
				continue
			}
			kept[path] = append(kept[path], object.GetName())
			for key, value := range want {
				if got := object.GetAnnotations()[key]; got != value {
					t.Errorf("%s: annotation %s of %s is %q, want %q", path, key, object.GetName(), got, value)
				}
			}
		}
	}
	if len(kept[hubBundle]) != 4 || len(kept[memberBundle]) != 2 {
		t.Errorf("looked at %v; the hub has three definitions and a namespace to keep, a member two definitions", kept)
	}
}

// TestBundles_grant_nothing_by_wildcard reads every rule of both files.
func TestBundles_grant_nothing_by_wildcard(t *testing.T) {
	rules := 0
	for _, path := range []string{hubBundle, memberBundle} {
		for _, object := range objectsIn(t, path) {
			if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
				continue
			}
			for _, rule := range decode[rbacv1.ClusterRole](t, object).Rules {
				rules++
				if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs), "*") {
					t.Errorf("%s: %s grants by wildcard: %v", path, object.GetName(), rule)
				}
			}
		}
	}
	if rules < 20 {
		t.Errorf("looked at %d rules only", rules)
	}
}

// TestInstall_runs_the_manager_in_a_restricted_namespace makes the Pod of the Deployment, as its controller would.
func TestInstall_runs_the_manager_in_a_restricted_namespace(t *testing.T) {
	var pod *corev1.Pod
	for _, object := range install(t, hub, hubBundle) {
		if object.GetKind() == "Deployment" {
			template := decode[appsv1.Deployment](t, object).Spec.Template
			pod = &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Namespace, pod.GenerateName = object.GetNamespace(), "flotilla-manager-"
		}
	}
	if pod == nil {
		t.Fatal("there is no Deployment")
	}
	if err := hub.Client.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("the manager's Pod is refused: %v", err)
	}
	for what, change := range map[string]func(*corev1.Pod){
		"the host's network": func(pod *corev1.Pod) { pod.Spec.HostNetwork = true },
		"root":               func(pod *corev1.Pod) { pod.Spec.SecurityContext.RunAsNonRoot = new(false) },
		"a capability": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
	} {
		wrong := pod.DeepCopy()
		change(wrong)
		if err := hub.Client.Create(t.Context(), wrong, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("a Pod with %s beside the manager: %v", what, err)
		}
	}
}

// TestInstall_opens_the_ports_that_the_manager_serves_and_no_other compares the network policy with the Deployment.
func TestInstall_opens_the_ports_that_the_manager_serves_and_no_other(t *testing.T) {
	var served, open []string
	denied := false
	for _, object := range objectsIn(t, hubBundle) {
		switch object.GetKind() {
		case "Deployment":
			for _, port := range decode[appsv1.Deployment](t, object).Spec.Template.Spec.Containers[0].Ports {
				served = append(served, port.Name)
			}
		case "NetworkPolicy":
			policy := decode[networkingv1.NetworkPolicy](t, object)
			if len(policy.Spec.PolicyTypes) != 2 {
				t.Errorf("%s says nothing about one direction", policy.Name)
			}
			denied = denied || len(policy.Spec.PodSelector.MatchLabels) == 0 && len(policy.Spec.Ingress)+len(policy.Spec.Egress) == 0
			for _, rule := range policy.Spec.Ingress {
				for _, port := range rule.Ports {
					open = append(open, port.Port.String())
				}
			}
		}
	}
	slices.Sort(served)
	slices.Sort(open)
	if !slices.Equal(served, open) || len(open) == 0 {
		t.Errorf("the manager serves %v, and %v are open", served, open)
	}
	if !denied {
		t.Error("Pods of the namespace that are not the manager's are not closed")
	}
}
