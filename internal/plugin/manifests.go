// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/flotilla-dev/flotilla/config"
)

// memberManifests is what `kubectl apply -k config/member` applies, in the order in which it can be applied.
func memberManifests() ([]*unstructured.Unstructured, error) {
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
}

// memberRoles are the rights among the manifests: what holds in the whole member and what only in a namespace.
func memberRoles() (clusterWide, inSystem []rbacv1.PolicyRule, err error) {
	objects, err := memberManifests()
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

// isRights says whether an object gives somebody rights, and so is taken back when the hub lets go of the member.
// Schemas, the policy that warns and the namespace change nothing by themselves, and others may use them: they stay.
func isRights(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount":
		return true
	}
	return false
}

// tryMemberManifests asks the member whether it would take the manifests, and writes nothing. In a namespace that is not
// there yet nothing can be tried; a cluster-scoped object of the same kind stands for it.
func tryMemberManifests(ctx context.Context, member *site, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		err := member.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), fieldOwner, client.ForceOwnership, client.DryRunAll)
		if apierrors.IsNotFound(err) && object.GetNamespace() != "" {
			continue
		}
		if err != nil {
			return member.explain("trying to apply "+describe(object), err)
		}
	}
	return nil
}

// applied is what applying the manifests has done.
type applied struct {
	total int
	// created are the rights that were not there before.
	created []*unstructured.Unstructured
}

// applyMemberManifests applies the manifests. What it has done is returned also with an error.
func applyMemberManifests(ctx context.Context, member *site, objects []*unstructured.Unstructured, doing func(string)) (applied, error) {
	var done applied
	for _, object := range objects {
		doing(describe(object))
		before := object.DeepCopy()
		err := member.Get(ctx, client.ObjectKeyFromObject(object), before)
		if err != nil && !apierrors.IsNotFound(err) {
			return done, member.explain("reading "+describe(object), err)
		}
		isNew := err != nil
		if err := member.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), fieldOwner, client.ForceOwnership); err != nil {
			return done, member.explain("applying "+describe(object), err)
		}
		done.total++
		if isNew && isRights(object) {
			done.created = append(done.created, object)
		}
	}
	return done, nil
}

// removeObjects deletes what is there of the objects, in reverse order, and names what could not be deleted.
func removeObjects(ctx context.Context, member *site, objects []*unstructured.Unstructured) (removed int, left []string) {
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

// describe names an object for people.
func describe(object client.Object) string {
	name := object.GetName()
	if object.GetNamespace() != "" {
		name = object.GetNamespace() + "/" + name
	}
	return object.GetObjectKind().GroupVersionKind().Kind + " " + name
}
