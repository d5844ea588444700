// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package changes lists the fields in which two specs differ.
package changes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Between returns the fields of a spec that differ, with both values if these are short.
func Between(before, after any) []string {
	var changed []string
	compareFields("", Fields(before), Fields(after), &changed)
	slices.Sort(changed)
	return changed
}

// Fields returns a value as decoded JSON.
func Fields(value any) any {
	var fields any
	document, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(document, &fields)
	}
	if err != nil {
		return nil
	}
	return fields
}

func compareFields(path string, before, after any, changed *[]string) {
	old, isMap := before.(map[string]any)
	next, isMapToo := after.(map[string]any)
	if isMap && isMapToo {
		keys := map[string]bool{}
		for key := range old {
			keys[key] = true
		}
		for key := range next {
			keys[key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			compareFields(strings.TrimPrefix(path+"."+key, "."), old[key], next[key], changed)
		}
		return
	}
	if !equality.Semantic.DeepEqual(before, after) {
		*changed = append(*changed, fmt.Sprintf("%s %s → %s", path, shortJSON(before), shortJSON(after)))
	}
}

// shortJSON returns a value in a few characters.
func shortJSON(value any) string {
	const limit = 60
	if value == nil {
		return "unset"
	}
	document, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	if text := string(document); len(text) <= limit {
		return strings.Trim(text, `"`)
	}
	return fmt.Sprintf("(%d bytes)", len(document))
}
