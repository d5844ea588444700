// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statuspatch writes the status of objects.
package statuspatch

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Guard is the precondition of a write. If it does not hold, the API server answers with a conflict.
type Guard string

const (
	// SameUID requires that the object was not created again under its name.
	SameUID Guard = "uid"
	// SameVersion requires that the object has not changed at all. A list with another writer needs it, because a merge
	// patch replaces lists.
	SameVersion Guard = "resourceVersion"
)

// Write patches the fields of the status in which after differs from before, and the status as a whole if before has
// none. It writes nothing if there is no difference. Of the response it requests and keeps only the resourceVersion,
// because some statuses grow with the number of members.
func Write(ctx context.Context, c client.Client, before, after client.Object, guard Guard, opts ...client.SubResourcePatchOption) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	data, err := encode(before, after, guard)
	if err != nil || data == nil {
		return err
	}
	gvk, err := c.GroupVersionKindFor(after)
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: after.GetNamespace(), Name: after.GetName()}}
	target.SetGroupVersionKind(gvk)
	if err := c.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, data), opts...); err != nil {
		return err
	}
	after.SetResourceVersion(target.GetResourceVersion())
	return nil
}

// encode returns the merge patch, and nil if the status is the same.
func encode(before, after client.Object, guard Guard) ([]byte, error) {
	data, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return nil, err
	}
	changes := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &changes); err != nil {
		return nil, err
	}
	status, changed := changes["status"]
	if !changed {
		return nil, nil
	}
	patch := map[string]any{"status": status}
	switch guard {
	case SameUID:
		patch["metadata"] = map[string]any{string(guard): before.GetUID()}
	case SameVersion:
		if before.GetResourceVersion() == "" {
			return nil, fmt.Errorf("%q has no resourceVersion to compare with", client.ObjectKeyFromObject(before))
		}
		patch["metadata"] = map[string]any{string(guard): before.GetResourceVersion()}
	}
	return json.Marshal(patch)
}
