// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// MaxRevisions is the number of revisions that are kept of a hub object.
const MaxRevisions = 10

// maxNamePart is how much of a hub object's name is in the names of its revisions.
const maxNamePart = 200

// RevisionName returns the name of the revision that has the present spec of a hub object. template identifies the spec, as
// in Specs.Template.
func RevisionName(kind Kind, object Object, template string) (string, error) {
	// The revisions of an object of the same name that is gone may still be there.
	hash, err := hashOf(map[string]any{"uid": object.GetUID(), "template": template})
	if err != nil {
		return "", err
	}
	name := object.GetName()
	// A label of a name must not end with one of these.
	name = strings.TrimRight(name[:min(len(name), maxNamePart)], "-.")
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(kind.Name), name, hash[:10]), nil
}

// RevisionNamespace returns where the revisions of a hub object are: beside it or, if it has no namespace, beside the manager.
func RevisionNamespace(object Object) string {
	if namespace := object.GetNamespace(); namespace != "" {
		return namespace
	}
	return flotillav1.SystemNamespace
}

// RevisionLabels returns the labels of the revisions of a hub object.
func RevisionLabels(object Object) map[string]string {
	return map[string]string{flotillav1.LabelRevisionOf: string(object.GetUID())}
}

// SortRevisions sorts revisions, the newest first.
func SortRevisions(revisions []appsv1.ControllerRevision) {
	slices.SortFunc(revisions, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(b.Revision, a.Revision) })
}

// NewRevision returns the revision with the present spec of a hub object. Its number is the generation of the object. It is
// deleted together with the object.
func NewRevision(kind Kind, object Object, name string) (*appsv1.ControllerRevision, error) {
	kept, err := keptSpec(kind, object)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(map[string]any{"spec": kept})
	if err != nil {
		return nil, fmt.Errorf("encoding the spec: %w", err)
	}
	owner := metav1.NewControllerRef(object, flotillav1.GroupVersion.WithKind(kind.Name))
	// Blocking the deletion of the owner would take another right.
	owner.BlockOwnerDeletion = nil
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: RevisionNamespace(object), Name: name, OwnerReferences: []metav1.OwnerReference{*owner}, Labels: RevisionLabels(object),
		},
		Data: runtime.RawExtension{Raw: data}, Revision: object.GetGeneration(),
	}, nil
}

// keptSpec returns what a revision keeps of a spec: everything but where the object is placed and how changes spread.
func keptSpec(kind Kind, object Object) (map[string]any, error) {
	spec, err := toMap(kind.Spec(object))
	if err != nil {
		return nil, fmt.Errorf("encoding the spec: %w", err)
	}
	overrides, found, err := unstructured.NestedFieldNoCopy(spec, "placement", "overrides")
	if err != nil {
		return nil, fmt.Errorf("reading the overrides: %w", err)
	}
	delete(spec, "placement")
	if found {
		spec["placement"] = map[string]any{"overrides": overrides}
	}
	return spec, nil
}

// RevisionSpec returns what a revision keeps.
func RevisionSpec(revision *appsv1.ControllerRevision) (map[string]any, error) {
	var kept struct {
		Spec map[string]any `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &kept); err != nil {
		return nil, fmt.Errorf("reading revision %q: %w", revision.Name, err)
	}
	if kept.Spec == nil {
		return nil, fmt.Errorf("reading revision %q: it has no spec", revision.Name)
	}
	return kept.Spec, nil
}

// SpecsOfRevision returns the specs that a hub object would have with what a revision keeps.
func SpecsOfRevision(kind Kind, object Object, revision *appsv1.ControllerRevision) (*Specs, error) {
	spec, err := toMap(kind.Spec(object))
	if err != nil {
		return nil, fmt.Errorf("encoding the spec: %w", err)
	}
	restored, err := Restore(spec, revision)
	if err != nil {
		return nil, err
	}
	earlier := kind.New()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": restored}, earlier); err != nil {
		return nil, fmt.Errorf("reading revision %q: %w", revision.Name, err)
	}
	return NewSpecs(kind, earlier)
}

// Restore returns the spec of a hub object with what a revision keeps. The clusters that it is placed in, and how changes
// spread, stay as they are.
func Restore(spec map[string]any, revision *appsv1.ControllerRevision) (map[string]any, error) {
	restored, err := RevisionSpec(revision)
	if err != nil {
		return nil, err
	}
	overrides, found, err := unstructured.NestedFieldNoCopy(restored, "placement", "overrides")
	if err != nil {
		return nil, fmt.Errorf("reading revision %q: %w", revision.Name, err)
	}
	delete(restored, "placement")
	placement, placed, err := unstructured.NestedMap(spec, "placement")
	if err != nil || !placed {
		return restored, err
	}
	delete(placement, "overrides")
	if found {
		placement["overrides"] = overrides
	}
	restored["placement"] = placement
	return restored, nil
}
