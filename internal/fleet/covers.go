// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// listKeys are the fields of the specs that are keyed lists: a member may add its own elements to them. All other lists
// are compared as a whole.
var listKeys = map[string][]string{
	"taints":           {"key", "effect"},
	"imagePullSecrets": {"name"},
	"claims":           {"name"},
}

// Uncovered returns the top-level fields of want that are missing in the spec of an object or have another value there.
// Fields and keyed elements that want does not contain belong to the member. spec is a pointer to its Go type, or a map as
// in JSON; a Go type is compared by its JSON form without being converted.
func Uncovered(want map[string]any, spec any) ([]string, error) {
	have := reflect.Indirect(reflect.ValueOf(spec))
	if kind := have.Kind(); kind != reflect.Struct && kind != reflect.Map {
		return nil, fmt.Errorf("comparing a spec with a %T", spec)
	}
	var uncovered []string
	for field, value := range want {
		if !covers(field, value, fieldOf(have, field)) {
			uncovered = append(uncovered, "spec."+field)
		}
	}
	slices.Sort(uncovered)
	return uncovered, nil
}

// Concede returns a copy of want in which the fields at paths, as returned by Uncovered, have the values of object.
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

// covers reports whether a value contains everything in want. An absent value is an invalid reflect.Value.
func covers(field string, want any, have reflect.Value) bool {
	have = inJSON(have)
	if !have.IsValid() {
		return isZero(want)
	}
	switch want := want.(type) {
	case map[string]any:
		return hasFields(have) && coversFields(want, have)
	case []any:
		return have.Kind() == reflect.Slice && coversList(listKeys[field], want, have)
	case string:
		return have.Kind() == reflect.String && have.String() == want
	case bool:
		return have.Kind() == reflect.Bool && have.Bool() == want
	case int64:
		return have.CanInt() && have.Int() == want
	case float64:
		return have.CanFloat() && have.Float() == want
	default:
		return false
	}
}

func coversFields(want map[string]any, have reflect.Value) bool {
	for field, value := range want {
		if !covers(field, value, fieldOf(have, field)) {
			return false
		}
	}
	return true
}

func coversList(keys []string, want []any, have reflect.Value) bool {
	if keys == nil {
		if len(want) != have.Len() {
			return false
		}
		for i := range want {
			if !covers("", want[i], have.Index(i)) {
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

func hasElement(keys []string, want map[string]any, have reflect.Value) bool {
	for i := range have.Len() {
		element := inJSON(have.Index(i))
		if !hasFields(element) {
			continue
		}
		same := true
		for _, key := range keys {
			same = same && sameKey(want[key], inJSON(fieldOf(element, key)))
		}
		if same {
			return coversFields(want, element)
		}
	}
	return false
}

// sameKey reports whether two keys are equal. An element without the key is a different one.
func sameKey(want any, have reflect.Value) bool {
	return (want == nil) == !have.IsValid() && (want == nil || covers("", want, have))
}

// hasFields reports whether a value is encoded as a JSON object.
func hasFields(value reflect.Value) bool {
	return value.Kind() == reflect.Struct || value.Kind() == reflect.Map
}

// fieldOf returns a field of an object by its JSON name, or an invalid value if JSON omits it.
func fieldOf(object reflect.Value, name string) reflect.Value {
	if object.Kind() == reflect.Map {
		return object.MapIndex(reflect.ValueOf(name).Convert(object.Type().Key()))
	}
	field, found := value.TypeReflectEntryOf(object.Type()).Fields()[name]
	if !found {
		return reflect.Value{}
	}
	content := field.GetFrom(object)
	if field.CanOmit(content) {
		return reflect.Value{}
	}
	return content
}

// inJSON dereferences pointers, and replaces a value with its own JSON encoding, such as a quantity, by that encoding. It
// returns an invalid value for null, as for an absent value.
func inJSON(v reflect.Value) reflect.Value {
	for v.IsValid() {
		switch entry := value.TypeReflectEntryOf(v.Type()); {
		case entry.CanConvertToUnstructured():
			// The value was decoded from JSON, so encoding it cannot fail.
			plain, _ := entry.ToUnstructured(v)
			return reflect.ValueOf(plain)
		case v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
			v = v.Elem()
		case (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil():
			return reflect.Value{}
		default:
			return v
		}
	}
	return v
}

// isZero reports whether Go's omitempty omits a value. After decoding into a Go type, such a field cannot be
// distinguished from an absent one.
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
