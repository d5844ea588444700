// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// listKeys names the fields of our specs that are lists with keys: a member may add elements of its own to them.
// Every other list is compared as a whole.
var listKeys = map[string][]string{
	"taints":           {"key", "effect"},
	"imagePullSecrets": {"name"},
	"claims":           {"name"},
}

// Uncovered returns the paths, without what is below them, of the fields of want that the spec of an object lacks or has
// with another value. Fields and keyed elements that want does not name belong to the member.
func Uncovered(want map[string]any, object any) ([]string, error) {
	have, err := toMap(object)
	if err != nil {
		return nil, err
	}
	var uncovered []string
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if !coversField(field, want[field], have[field]) {
			uncovered = append(uncovered, "spec."+field)
		}
	}
	return uncovered, nil
}

// Concede returns a spec with the values that an object has in the fields of these paths, which Uncovered has returned.
func Concede(want Effective, object any, paths []string) (Effective, error) {
	have, err := toMap(object)
	if err != nil {
		return want, err
	}
	conceded := want.DeepCopy()
	for _, path := range paths {
		field := strings.TrimPrefix(path, "spec.")
		if value, found := have[field]; found {
			conceded.Spec[field] = value
		} else {
			delete(conceded.Spec, field)
		}
	}
	return conceded, nil
}

func coversMap(want, have map[string]any) bool {
	for field, value := range want {
		if !coversField(field, value, have[field]) {
			return false
		}
	}
	return true
}

func coversField(field string, want, have any) bool {
	if have == nil {
		return isZero(want)
	}
	switch value := want.(type) {
	case map[string]any:
		nested, ok := have.(map[string]any)
		return ok && coversMap(value, nested)
	case []any:
		items, ok := have.([]any)
		return ok && coversList(listKeys[field], value, items)
	default:
		return reflect.DeepEqual(want, have)
	}
}

func coversList(keys []string, want, have []any) bool {
	if keys == nil {
		if len(want) != len(have) {
			return false
		}
		for i := range want {
			if !coversField("", want[i], have[i]) {
				return false
			}
		}
		return true
	}
	for _, item := range want {
		element, ok := item.(map[string]any)
		if !ok || !hasElement(keys, element, have) {
			return false
		}
	}
	return true
}

func hasElement(keys []string, want map[string]any, have []any) bool {
	for _, item := range have {
		element, ok := item.(map[string]any)
		if !ok {
			continue
		}
		same := true
		for _, key := range keys {
			same = same && reflect.DeepEqual(want[key], element[key])
		}
		if same {
			return coversMap(want, element)
		}
	}
	return false
}

// isZero reports whether Go's omitempty would leave a value out: the cached object, read into its Go type and written
// again, does not tell such a field from an absent one.
func isZero(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case int64:
		return value == 0
	case float64:
		return value == 0
	case []any:
		return len(value) == 0
	case map[string]any:
		for _, nested := range value {
			if !isZero(nested) {
				return false
			}
		}
		return true
	}
	return false
}
