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

// listKeys names the fields of our specs that are lists with keys: a member may add elements of its own to them.
// Every other list is compared as a whole.
var listKeys = map[string][]string{
	"taints":           {"key", "effect"},
	"imagePullSecrets": {"name"},
	"claims":           {"name"},
}

// Uncovered returns the paths, without what is below them, of the fields of want that the spec of an object lacks or has
// with another value. Fields and keyed elements that want does not name belong to the member. The spec is a pointer to its
// Go type, or a map as in JSON; a Go type is compared as it is, in the form that it has in JSON.
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

// covers reports whether a value has everything that is wanted of it. One that is absent is not valid.
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

// sameKey is strict: an element without the key is another one.
func sameKey(want any, have reflect.Value) bool {
	return (want == nil) == !have.IsValid() && (want == nil || covers("", want, have))
}

// hasFields reports whether a value is an object in JSON.
func hasFields(value reflect.Value) bool {
	return value.Kind() == reflect.Struct || value.Kind() == reflect.Map
}

// fieldOf returns a field of an object by its name in JSON; one that is absent there is not valid.
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

// inJSON follows pointers, and returns a value that writes its own JSON, such as a quantity, as what it writes. Null is not
// valid, like what is absent.
func inJSON(v reflect.Value) reflect.Value {
	for v.IsValid() {
		switch entry := value.TypeReflectEntryOf(v.Type()); {
		case entry.CanConvertToUnstructured():
			// Such a value was decoded from JSON, so it can be encoded.
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
