// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/manifests"
)

// rbac registers a member that has only what the command prints, and places a Redis inside and one outside of it.
func (s *story) rbac(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"shop", "pay"} {
		ensure(t, eu1, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	printed := s.must("rbac", "--kinds", "Redis", "--namespaces", "shop")
	show(t, "rbac", "rbac --kinds Redis --namespaces shop", result{shown: roleIn(printed.out, "shop")})
	for _, object := range decode(t, printed.out) {
		if err := eu1.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("%s: %v", console.Describe(object), err)
		}
	}
	s.must("register", "eu-1", "--member-context", "eu-1-admin", "--kinds", "Redis", "--skip-manifests")
	inside, outside := s.place(t, "shop", "session", "eu-1"), s.place(t, "pay", "session", "eu-1")
	s.eventually("the Redis inside is made", func() (bool, error) {
		err := eu1.Client.Get(ctx, client.ObjectKeyFromObject(inside), &appsv1.StatefulSet{})
		return err == nil, client.IgnoreNotFound(err)
	})
	if got := condition.Of(s.member("eu-1").Status.Conditions, flotillav1.ConditionAPIsServed); got.Reason != flotillav1.ReasonAllServed {
		t.Errorf("APIsServed is %s: %s: %s", got.Status, got.Reason, got.Message)
	}
	s.eventually("the Redis outside shows what is missing", func() (bool, error) {
		err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(outside), outside)
		for _, entry := range entriesOf(outside) {
			if entry.Name == "eu-1" && strings.Contains(entry.Message, `cannot create resource "redises"`) {
				return true, nil
			}
		}
		return false, err
	})
	err := eu1.Client.Get(ctx, client.ObjectKeyFromObject(outside), &appsv1.StatefulSet{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Redis outside has a StatefulSet (%v)", err)
	}
}

// decode reads the objects of a manifest.
func decode(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// roleIn keeps the document of a manifest that is the Role in a namespace.
func roleIn(manifest, namespace string) string {
	for document := range strings.SplitSeq(manifest, "---\n") {
		if strings.Contains(document, "\nkind: Role\n") && strings.Contains(document, "\n  namespace: "+namespace+"\n") {
			return document
		}
	}
	return ""
}

func TestRBAC_takes_arguments_that_it_understands_only(t *testing.T) {
	w := newWorld(t)
	w.fails([]string{`the kind "Pod" is not known`, "use Redis or NodePool"}, "rbac", "--kinds", "Pod")
	w.fails([]string{"--namespaces is about Redis", "add Redis"}, "rbac", "--kinds", "NodePool", "--namespaces", "shop")
}

func TestRBAC_for_everything_is_config_member(t *testing.T) {
	w := newWorld(t)
	objects, err := manifests.Member()
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]*unstructured.Unstructured{}
	for _, object := range decode(t, w.must("rbac").out) {
		printed[console.Describe(object)] = object
	}
	if len(printed) != len(objects) {
		t.Errorf("%d objects are printed, and config/member has %d", len(printed), len(objects))
	}
	for _, object := range objects {
		got := printed[console.Describe(object)]
		if got == nil {
			t.Errorf("%s is not printed", console.Describe(object))
			continue
		}
		if object.GetKind() == "ClusterRole" {
			if diff := cmp.Diff(rightsOf(t, object), rightsOf(t, got)); diff != "" {
				t.Errorf("%s has other rights (-config +printed):\n%s", console.Describe(object), diff)
			}
		}
	}
}

func TestRBAC_for_NodePool_has_nothing_of_Redis(t *testing.T) {
	w := newWorld(t)
	for _, object := range decode(t, w.must("rbac", "--kinds", "NodePool").out) {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		rights := rightsOf(t, object)
		for _, without := range []string{"create secrets", "create statefulsets.apps", "patch redises.flotilla.dev", "create namespaces", "get customresourcedefinitions.apiextensions.k8s.io/redises.flotilla.dev"} {
			if slices.Contains(rights, without) {
				t.Errorf("it gives the right to %s", without)
			}
		}
		for _, with := range []string{"patch nodes", "create runtimeclasses.node.k8s.io", "patch nodepools.flotilla.dev", "get namespaces"} {
			if !slices.Contains(rights, with) {
				t.Errorf("it does not give the right to %s", with)
			}
		}
	}
}

// rightsOf lists the rights of a role one by one, sorted: verb resource.group/name.
func rightsOf(t *testing.T, object *unstructured.Unstructured) []string {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
		t.Fatal(err)
	}
	var rights []string
	for _, rule := range role.Rules {
		for _, name := range append(rule.ResourceNames, rule.NonResourceURLs...) {
			for _, verb := range rule.Verbs {
				for i := range rule.Resources {
					rights = append(rights, verb+" "+rule.Resources[i]+"."+rule.APIGroups[0]+"/"+name)
				}
				if len(rule.Resources) == 0 {
					rights = append(rights, verb+" "+name)
				}
			}
		}
		if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
			continue
		}
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				rights = append(rights, strings.TrimSuffix(verb+" "+resource+"."+rule.APIGroups[0], "."))
			}
		}
	}
	slices.Sort(rights)
	return rights
}
