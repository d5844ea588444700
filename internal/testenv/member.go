// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hubUser is who the hub is in a member.
const hubUser = "system:serviceaccount:flotilla-system:flotilla-hub"

// Apply applies the objects of a file of the module, given by its path there, as kubectl apply --server-side does.
func (c *Cluster) Apply(ctx context.Context, path string) ([]*unstructured.Unstructured, error) {
	objects, err := Objects(path)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"), client.ForceOwnership)
		if err != nil {
			return nil, fmt.Errorf("applying %s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return objects, nil
}

// Objects returns the objects of a file of the module, given by its path there, in their order.
func Objects(path string) ([]*unstructured.Unstructured, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("reading %q: %w", path, err)
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// AsHub makes the cluster a member, as its administrator does, and returns the config of the hub's identity there: what it
// does has to get past the rights and the policies of dist/member.yaml.
func (c *Cluster) AsHub(t testing.TB) *rest.Config {
	t.Helper()
	c.joining.Do(func() { c.asHub, c.joinErr = c.join() })
	if c.joinErr != nil {
		t.Fatalf("making a member: %v", c.joinErr)
	}
	return rest.CopyConfig(c.asHub)
}

func (c *Cluster) join() (*rest.Config, error) {
	ctx := context.Background()
	if _, err := c.Apply(ctx, "dist/member.yaml"); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: hubUser,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:flotilla-system", "system:authenticated"},
	}
	hub, err := client.New(config, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	// Policies are in force a moment after they are stored. Rights are looked at before them.
	refused := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-somebody-else"}}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return isPolicy(hub.Create(ctx, refused.DeepCopy(), client.DryRunAll)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the policies of a member: %w", err)
	}
	return config, nil
}

// isPolicy reports whether a policy refused, and not a lack of rights.
func isPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}
