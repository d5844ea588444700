// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests renders and applies what a member needs: the objects of config/member.
package manifests

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/flotilla-dev/flotilla/config"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// Member returns the objects of config/member in an order in which they can be applied. They are the caller's own.
func Member() ([]*unstructured.Unstructured, error) {
	manifests, err := rendered()
	objects := make([]*unstructured.Unstructured, 0, len(manifests))
	for _, object := range manifests {
		objects = append(objects, object.DeepCopy())
	}
	return objects, err
}

// rendered renders config/member once: that takes longer than to look into a member.
var rendered = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
	files := filesys.MakeFsInMemory()
	err := fs.WalkDir(config.Manifests, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(config.Manifests, path)
		if err != nil {
			return err
		}
		return files.WriteFile("/config/"+path, content)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the manifests of this build: %w", err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/config/member")
	if err != nil {
		return nil, fmt.Errorf("rendering the manifests of this build: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range resources.Resources() {
		encoded, err := resource.MarshalJSON()
		object := &unstructured.Unstructured{}
		if err == nil {
			err = object.UnmarshalJSON(encoded)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the manifests of this build: %w", err)
		}
		objects = append(objects, object)
	}
	// Namespaces and definitions first; the rest in the order of the files.
	rank := map[string]int{"Namespace": -2, "CustomResourceDefinition": -1}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank[a.GetKind()] - rank[b.GetKind()] })
	return objects, nil
})

// Roles returns the rights among the manifests: those in the whole member, and those in the namespace of the hub.
func Roles() (clusterWide, inSystem []rbacv1.PolicyRule, err error) {
	objects, err := rendered()
	if err != nil {
		return nil, nil, err
	}
	for _, object := range objects {
		role := &rbacv1.ClusterRole{}
		if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			return nil, nil, fmt.Errorf("reading %s %q of this build: %w", object.GetKind(), object.GetName(), err)
		}
		if object.GetKind() == "ClusterRole" {
			clusterWide = append(clusterWide, role.Rules...)
		} else {
			inSystem = append(inSystem, role.Rules...)
		}
	}
	return clusterWide, inSystem, nil
}

// IsRights reports whether an object gives rights, and is removed when the hub releases the member. Schemas, the policies
// about annotations and taints, and the namespace have no effect of their own and may be in use: they stay.
func IsRights(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount":
		return true
	}
	return false
}

// RightsAmong returns the objects that give rights.
func RightsAmong(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool { return !IsRights(object) })
}

// Try applies the manifests by dry run. Objects of a namespace that does not exist yet cannot be tried; a
// cluster-scoped object of the same kind stands for them.
func Try(ctx context.Context, member *site.Site, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		err := member.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), site.FieldOwner, client.ForceOwnership, client.DryRunAll)
		if apierrors.IsNotFound(err) && object.GetNamespace() != "" {
			continue
		}
		if err != nil {
			return member.Explain("trying to apply "+console.Describe(object), err)
		}
	}
	return nil
}

// Applied is the result of applying the manifests.
type Applied struct {
	Total int
	// Created are the rights that did not exist before.
	Created []*unstructured.Unstructured
}

// Apply applies the manifests. It returns what it has done even with an error.
func Apply(ctx context.Context, member *site.Site, objects []*unstructured.Unstructured, doing func(string)) (Applied, error) {
	var done Applied
	for _, object := range objects {
		doing(console.Describe(object))
		before := object.DeepCopy()
		err := member.Get(ctx, client.ObjectKeyFromObject(object), before)
		if err != nil && !apierrors.IsNotFound(err) {
			return done, member.Explain("reading "+console.Describe(object), err)
		}
		isNew := err != nil
		if err := member.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), site.FieldOwner, client.ForceOwnership); err != nil {
			return done, member.Explain("applying "+console.Describe(object), err)
		}
		done.Total++
		if isNew && IsRights(object) {
			done.Created = append(done.Created, object)
		}
	}
	return done, nil
}

// Remove deletes those of the objects that exist, in reverse order, and names those that it could not delete.
func Remove(ctx context.Context, member *site.Site, objects []*unstructured.Unstructured) (removed int, left []string) {
	for _, object := range slices.Backward(objects) {
		err := member.Delete(ctx, object.DeepCopy())
		switch {
		case err == nil:
			removed++
		case !apierrors.IsNotFound(err):
			left = append(left, console.Describe(object))
		}
	}
	return removed, left
}
