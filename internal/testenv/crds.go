// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// CRDs returns our CustomResourceDefinitions as the module has them.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("finding our CRDs: %w", err)
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(paths))
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading our CRDs: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return nil, fmt.Errorf("reading the CRD in %q: %w", path, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// firstSchemas is where the definitions are as they were when their schemas got numbers.
const firstSchemas = "internal/testenv/testdata/crds-1"

// FirstCRDs are the files of our CustomResourceDefinitions with the first numbered schemas, by their paths in the module.
func FirstCRDs() []string {
	var paths []string
	for _, plural := range []string{"memberclusters", "nodepools", "redises"} {
		paths = append(paths, firstSchemas+"/flotilla.dev_"+plural+".yaml")
	}
	return paths
}

// GoBack gives the cluster the first schemas, as somebody has it who has not upgraded since. Objects of ours go.
func (c *Cluster) GoBack(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	for _, path := range FirstCRDs() {
		objects, err := Objects(path)
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: objects[0].GetName()}}
		if err := c.Client.Delete(ctx, definition); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		c.until(t, definition.Name+" is gone", func() bool {
			return apierrors.IsNotFound(c.Client.Get(ctx, client.ObjectKeyFromObject(definition), definition))
		})
		if _, err := c.Apply(ctx, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, list := range []client.ObjectList{&flotillav1.MemberClusterList{}, &flotillav1.NodePoolList{}, &flotillav1.RedisList{}} {
		c.until(t, fmt.Sprintf("%T is served", list), func() bool { return c.Client.List(ctx, list) == nil })
	}
}

// until waits for something that an API server does by itself.
func (c *Cluster) until(t testing.TB, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}
