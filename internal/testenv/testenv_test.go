// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

var shared *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &shared)) }

func TestKubeconfig_works_alone(t *testing.T) {
	config, err := clientcmd.RESTConfigFromKubeConfig(shared.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if config.CAFile != "" || config.CertFile != "" || config.KeyFile != "" || config.BearerTokenFile != "" {
		t.Errorf("the kubeconfig refers to files: %v", config)
	}
	c, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{&flotillav1.RedisList{}, &flotillav1.NodePoolList{}, &flotillav1.MemberClusterList{}} {
		if err := c.List(context.Background(), list); err != nil {
			t.Errorf("listing %T: %v", list, err)
		}
	}
}

func TestUser_without_groups_has_no_rights(t *testing.T) {
	c, err := client.New(shared.User(t, "nobody"), client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.List(context.Background(), &corev1.NodeList{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing nodes as a user without rights: got %v, want forbidden", err)
	}
}

func TestNode_is_ready_and_untainted(t *testing.T) {
	shared.Node(t, "builder", map[string]string{"tier": "fast"})
	node := &corev1.Node{}
	if err := shared.Client.Get(context.Background(), client.ObjectKey{Name: "builder"}, node); err != nil {
		t.Fatal(err)
	}
	if len(node.Spec.Taints) != 0 || node.Status.Conditions[0].Status != corev1.ConditionTrue || node.Labels["tier"] != "fast" {
		t.Errorf("want a ready node with its label and without taints, got %+v %+v", node.Spec, node.Status)
	}
	if cpu := node.Status.Allocatable.Cpu().String(); cpu != "4" {
		t.Errorf("allocatable CPU: got %s, want 4", cpu)
	}
}

func TestNamespaces_differ(t *testing.T) {
	first, second := shared.Namespace(t), shared.Namespace(t)
	if first == second {
		t.Errorf("two namespaces have the same name %q", first)
	}
	secret := testenv.SecretFor(shared, first, "member-1")
	if err := shared.Client.Create(context.Background(), secret); err != nil {
		t.Errorf("creating a registration: %v", err)
	}
	if err := shared.Client.Get(context.Background(), client.ObjectKeyFromObject(secret), &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
	}); err != nil {
		t.Errorf("reading the registration: %v", err)
	}
}

func TestServices_leave_the_address_of_a_deleted_one_free(t *testing.T) {
	ctx, namespace := context.Background(), shared.Namespace(t)
	create := func(name string) *corev1.Service {
		t.Helper()
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		if err := shared.Client.Create(ctx, service); err != nil {
			t.Fatalf("creating Service %q: %v", name, err)
		}
		return service
	}
	deleted := create("deleted")
	if err := shared.Client.Delete(ctx, deleted); err != nil {
		t.Fatal(err)
	}
	// More than a /24 has.
	for i := range 256 {
		if other := create(fmt.Sprint("other-", i)); other.Spec.ClusterIP == deleted.Spec.ClusterIP {
			t.Fatalf("Service %d has got the address %s of the deleted one", i, other.Spec.ClusterIP)
		}
	}
}

func TestStart_gives_another_cluster(t *testing.T) {
	other := testenv.Start(t)
	uid := func(c *testenv.Cluster) string {
		namespace := &corev1.Namespace{}
		if err := c.Client.Get(context.Background(), client.ObjectKey{Name: "kube-system"}, namespace); err != nil {
			t.Fatal(err)
		}
		return string(namespace.UID)
	}
	if uid(shared) == uid(other) {
		t.Error("two control planes have the same identity")
	}
}
