// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// leftDiffers reports whether the fields that are left to the member have changed since the copy was written.
func leftDiffers(found fleet.Object, desired *unstructured.Unstructured) bool {
	return found.GetAnnotations()[flotillav1.AnnotationLeftToMember] != desired.GetAnnotations()[flotillav1.AnnotationLeftToMember]
}

// handOver transfers the ownership of the fields that are left to the member before an apply omits them: otherwise the
// API server would reset them to the defaults of the schema. It writes no value, and after a crash in between the next
// pass finds the ownership already transferred. The annotation that lists the fields changes with the apply, so
// handOver makes no request while they stay the same.
func (p *copyPass) handOver(ctx context.Context, found fleet.Object, desired *unstructured.Unstructured, left [][]string) error {
	if !leftDiffers(found, desired) {
		return nil
	}
	// Cached objects have no managed fields.
	live := p.Kind.New()
	if err := p.member.GetAPIReader().Get(ctx, p.key.Object, live); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the owners of fields: %w", err)
	}
	wanted := desired.GetResourceVersion()
	if live.GetUID() != found.GetUID() || wanted != "" && wanted != live.GetResourceVersion() {
		resource := schema.GroupResource{Group: flotillav1.GroupVersion.Group, Resource: p.Kind.Name}
		return apierrors.NewConflict(resource, p.key.Object.Name, fmt.Errorf("the copy in cluster %q has changed", p.name))
	}
	managed, changed, err := fleet.HandOver(live.GetManagedFields(), string(FieldOwner), left, metav1.NewTime(p.Clock.Now()))
	if err != nil || !changed {
		return err
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(), "managedFields": managed,
	}})
	if err != nil {
		return fmt.Errorf("encoding the owners of fields: %w", err)
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Object.Namespace, Name: p.key.Object.Name}}
	target.SetGroupVersionKind(flotillav1.GroupVersion.WithKind(p.Kind.Name))
	if err := p.member.GetClient().Patch(ctx, target, client.RawPatch(types.MergePatchType, data), FieldOwner); err != nil {
		return fmt.Errorf("handing fields over to the member: %w", err)
	}
	desired.SetResourceVersion(target.GetResourceVersion())
	return nil
}
