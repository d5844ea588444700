// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Storable returns a status of a kind without the fields that the member's schema lacks. An API server drops these
// silently, so that the status would differ from the stored one forever.
func Storable[T any](snapshot Snapshot, kind string, status T) (T, error) {
	lacks := snapshot.LacksStatus[kind]
	if len(lacks) == 0 {
		return status, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return status, fmt.Errorf("reading the status of a %s: %w", kind, err)
	}
	for _, path := range lacks {
		prune(fields, strings.Split(strings.TrimPrefix(path, "status."), "."))
	}
	stored := *new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &stored); err != nil {
		return status, fmt.Errorf("leaving fields out of the status of a %s: %w", kind, err)
	}
	return stored, nil
}

// prune removes a field, in every list item and map value on its path.
func prune(value any, path []string) {
	fields, ok := value.(map[string]any)
	if !ok {
		return
	}
	if path[0] == "*" {
		for _, field := range fields {
			prune(field, path[1:])
		}
		return
	}
	name, list := strings.CutSuffix(path[0], "[]")
	switch {
	case list:
		items, _ := fields[name].([]any)
		for _, item := range items {
			prune(item, path[1:])
		}
	case len(path) == 1:
		delete(fields, name)
	default:
		prune(fields[name], path[1:])
	}
}
