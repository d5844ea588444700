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

// MissingField is a field of our schema that a member's schema lacks.
type MissingField struct {
	// Path names it, such as spec.taints[].effect; "*" stands for the keys of a map.
	Path string
	// Default is what our schema fills in, as canonical JSON; empty when it fills in nothing.
	Default string
}

// Fit returns what of a spec can be applied to a member whose schema lacks fields, and the paths of those that the spec
// uses. One that only has the value which the hub's schema fills in is not used: it is left out, because nobody asked
// for it and a member without the field does what the default says. The hash stays that of the whole spec.
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

// uses reports whether a document has a field with another value than the default, and removes it where it has the default.
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

// anyUses looks at every child, because those with the default lose the field.
func anyUses(children iter.Seq[any], path []string, byDefault string) bool {
	used := false
	for child := range children {
		used = uses(child, path, byDefault) || used
	}
	return used
}
