// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// The field managers of a copy.
const (
	// PlacementManager is the field manager of everything that placement writes.
	PlacementManager = "flotilla-placement"
	// MemberManager is the field manager of the fields that placement has left to the member.
	MemberManager = "flotilla-member"
)

// HandOver returns the managed fields of a copy in which MemberManager owns exactly those of placement's fields that are
// left to the member. It reports whether this is a change.
//
// When placement stops applying a field that it owns alone, the API server removes the field, and the default of the
// schema applies. With another owner the field keeps its value, even if placement later drops everything around it.
func HandOver(managed []metav1.ManagedFieldsEntry, placement string, left [][]string, now metav1.Time) ([]metav1.ManagedFieldsEntry, bool, error) {
	owned := map[string]any{}
	changed := false
	var out []metav1.ManagedFieldsEntry
	for _, entry := range managed {
		mine := entry.Manager == placement && entry.Operation == metav1.ManagedFieldsOperationApply
		members := entry.Manager == MemberManager
		if !mine && !members || entry.Subresource != "" || entry.FieldsV1 == nil {
			out = append(out, entry)
			continue
		}
		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return nil, false, fmt.Errorf("decoding the fields of manager %q: %w", entry.Manager, err)
		}
		moved := moveFields(fields, left, owned)
		if members {
			// Another override has withdrawn the remaining fields.
			changed = changed || len(fields) > 0 || !moved
			continue
		}
		if moved {
			changed = true
			entry.FieldsV1 = encodeFields(fields)
		}
		out = append(out, entry)
	}
	switch {
	case !changed:
		return managed, false, nil
	case len(owned) == 0:
		return out, true, nil
	}
	return append(out, metav1.ManagedFieldsEntry{
		Manager: MemberManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: flotillav1.GroupVersion.String(),
		Time: &now, FieldsType: "FieldsV1", FieldsV1: encodeFields(owned),
	}), true, nil
}

// moveFields moves the fields at the given paths of the spec from one set of managed fields to another, and reports
// whether there were any.
func moveFields(from map[string]any, paths [][]string, to map[string]any) bool {
	moved := false
	for _, path := range paths {
		if value, found := valueAt(from, fieldKeys(path)); found {
			moved = true
			merge(to, fieldKeys(path), value)
			dropField(from, fieldKeys(path))
		}
	}
	return moved
}

// encodeFields encodes a set of managed fields. It cannot fail, because the fields were decoded from JSON.
func encodeFields(fields map[string]any) *metav1.FieldsV1 {
	raw, err := json.Marshal(fields)
	utilruntime.Must(err)
	encoded := &metav1.FieldsV1{}
	encoded.SetRawBytes(raw)
	return encoded
}

// fieldKeys returns the path of a field of the spec in the encoding of managed fields.
func fieldKeys(path []string) []string {
	keys := []string{"f:spec"}
	for _, name := range path {
		keys = append(keys, "f:"+name)
	}
	return keys
}

// itself is the key with which a set of managed fields represents its parent field.
const itself = "."

// merge merges a subset into a set of managed fields.
func merge(fields map[string]any, keys []string, subset any) {
	if present, found := valueAt(fields, keys); found {
		have, ok := present.(map[string]any)
		more, both := subset.(map[string]any)
		if ok && both {
			for _, key := range slices.Sorted(maps.Keys(more)) {
				merge(have, []string{key}, more[key])
			}
			return
		}
	}
	setField(fields, keys, subset)
}
