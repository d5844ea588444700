// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
)

// MissingField is a field of the manager's schema that a member's schema lacks.
type MissingField struct {
	// Path is the path of the field, such as spec.taints[].effect; "*" stands for the keys of a map.
	Path string
	// Default is the default of the manager's schema as canonical JSON, or empty if there is none.
	Default string
}

// Fit returns the part of a spec that can be applied to a member whose schema lacks fields, and the paths of the missing
// fields that the spec uses. A field with the default of the hub's schema does not count as used: it is omitted, because
// a member without the field behaves like the default. The hash stays that of the whole spec.
func (e Effective) Fit(lacks []MissingField) (fitting Effective, used []string) {
	if len(lacks) == 0 {
		return e, nil
	}
	fitting = e.DeepCopy()
	for _, field := range lacks {
		path := strings.Split(strings.ReplaceAll(strings.TrimPrefix(field.Path, "spec."), "[]", ".[]"), ".")
		if uses(fitting.Spec, path, field.Default) {
			used = append(used, field.Path)
		}
	}
	return fitting, used
}

// uses reports whether a document has the field with a value other than the default, and removes it where it has the
// default.
func uses(node any, path []string, byDefault string) bool {
	switch children := node.(type) {
	case []any:
		return path[0] == "[]" && anyUses(slices.Values(children), path[1:], byDefault)
	case map[string]any:
		if path[0] == "*" {
			return anyUses(maps.Values(children), path[1:], byDefault)
		}
		value, found := children[path[0]]
		if !found || len(path) > 1 {
			return found && uses(value, path[1:], byDefault)
		}
		document, err := json.Marshal(value)
		if err == nil && byDefault != "" && string(document) == byDefault {
			delete(children, path[0])
			return false
		}
		return true
	default:
		return false
	}
}

// anyUses visits every child, because uses removes the field from those with the default.
func anyUses(children iter.Seq[any], path []string, byDefault string) bool {
	used := false
	for child := range children {
		used = uses(child, path, byDefault) || used
	}
	return used
}
