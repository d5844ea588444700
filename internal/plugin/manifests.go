// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

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
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// memberManifests returns the objects of config/member in an order in which they can be applied. They are the caller's own.
func memberManifests() ([]*unstructured.Unstructured, error) {
	rendered, err := renderedManifests()
	objects := make([]*unstructured.Unstructured, 0, len(rendered))
	for _, object := range rendered {
		objects = append(objects, object.DeepCopy())
	}
	return objects, err
}

// renderedManifests renders config/member once: that takes longer than to look into a member.
var renderedManifests = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
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
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/config/member")
	if err != nil {
		return nil, fmt.Errorf("rendering the manifests of this build: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range rendered.Resources() {
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

// memberRoles returns the rights among the manifests: those in the whole member, and those in the namespace of the hub.
func memberRoles() (clusterWide, inSystem []rbacv1.PolicyRule, err error) {
	objects, err := renderedManifests()
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

// isRights reports whether an object gives rights, and is removed when the hub releases the member. Schemas, the policies
// about annotations and taints, and the namespace have no effect of their own and may be in use: they stay.
func isRights(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount":
		return true
	}
	return false
}

// rightsAmong returns the objects that give rights.
func rightsAmong(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool { return !isRights(object) })
}

// tryMemberManifests applies the manifests by dry run. Objects of a namespace that does not exist yet cannot be tried; a
// cluster-scoped object of the same kind stands for them.
func tryMemberManifests(ctx context.Context, member *site.Site, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		err := member.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), site.FieldOwner, client.ForceOwnership, client.DryRunAll)
		if apierrors.IsNotFound(err) && object.GetNamespace() != "" {
			continue
		}
		if err != nil {
			return member.Explain("trying to apply "+describe(object), err)
		}
	}
	return nil
}

// applied is the result of applying the manifests.
type applied struct {
	total int
	// created are the rights that did not exist before.
	created []*unstructured.Unstructured
}

// applyMemberManifests applies the manifests. It returns what it has done even with an error.
func applyMemberManifests(ctx context.Context, member *site.Site, objects []*unstructured.Unstructured, doing func(string)) (applied, error) {
	var done applied
	for _, object := range objects {
		doing(describe(object))
		before := object.DeepCopy()
		err := member.Get(ctx, client.ObjectKeyFromObject(object), before)
		if err != nil && !apierrors.IsNotFound(err) {
			return done, member.Explain("reading "+describe(object), err)
		}
		isNew := err != nil
		if err := member.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), site.FieldOwner, client.ForceOwnership); err != nil {
			return done, member.Explain("applying "+describe(object), err)
		}
		done.total++
		if isNew && isRights(object) {
			done.created = append(done.created, object)
		}
	}
	return done, nil
}

// removeObjects deletes those of the objects that exist, in reverse order, and names those that it could not delete.
func removeObjects(ctx context.Context, member *site.Site, objects []*unstructured.Unstructured) (removed int, left []string) {
	for _, object := range slices.Backward(objects) {
		err := member.Delete(ctx, object.DeepCopy())
		switch {
		case err == nil:
			removed++
		case !apierrors.IsNotFound(err):
			left = append(left, describe(object))
		}
	}
	return removed, left
}
