// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// field is a JSON field of a struct.
type field struct {
	fieldType reflect.Type
	required  bool
}

// fieldsOf returns the fields of a struct type by their JSON names. Fields without omitempty or omitzero are required.
func fieldsOf(structType reflect.Type) map[string]field {
	fields := map[string]field{}
	for found := range structType.Fields() {
		name, options, _ := strings.Cut(found.Tag.Get("json"), ",")
		switch {
		case name == "" && found.Anonymous:
			maps.Copy(fields, fieldsOf(pointedTo(found.Type)))
		case name != "" && name != "-":
			fields[name] = field{found.Type, !strings.Contains(options, "omit")}
		}
	}
	return fields
}

var (
	unmarshaler  = reflect.TypeFor[json.Unmarshaler]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

// quantityPattern is the pattern of quantities in the schemas. Without it, decoding one could need gigabytes.
var quantityPattern = regexp.MustCompile(`^(\+|-)?(([0-9]{1,20}(\.[0-9]{0,20})?)|(\.[0-9]{1,20}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`)

// pointedTo strips pointers from a type.
func pointedTo(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// shapeOf returns how a type is encoded in JSON: as an object with known fields (Struct), an object with arbitrary keys
// (Map), a list (Slice), or a scalar (Invalid).
func shapeOf(t reflect.Type) reflect.Kind {
	if kind := t.Kind(); !reflect.PointerTo(t).Implements(unmarshaler) && (kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice) {
		return kind
	}
	return reflect.Invalid
}

// specType returns the Go type of the specs of a kind.
func (k Kind) specType() reflect.Type { return pointedTo(reflect.TypeOf(k.Spec(k.New()))) }

// parsePath parses the path of an optional field of a spec, such as resources.limits. Everything after the name of a map
// is a key of it, including dots.
func (k Kind) parsePath(text string) ([]string, error) {
	var path []string
	in, rest := k.specType(), text
	for more := true; more; {
		switch shapeOf(in) {
		case reflect.Map:
			return append(path, rest), nil
		case reflect.Slice:
			return nil, fmt.Errorf("%q is in a list: name the whole list, %s", text, strings.Join(path, "."))
		case reflect.Invalid:
			return nil, fmt.Errorf("%q has no fields: name %s", strings.Join(path, "."), strings.Join(path, "."))
		}
		fields := fieldsOf(in)
		var name string
		name, rest, more = strings.Cut(rest, ".")
		found, known := fields[name]
		switch {
		case !known && len(path) == 0 && name == "spec" && more:
			return nil, fmt.Errorf("unknown field %q: paths are relative to the spec, write %q", text, rest)
		case !known:
			return nil, unknownField(path, name, fields)
		case !more && found.required:
			return nil, fmt.Errorf("%q is required: it cannot be left to the member", text)
		}
		path, in = append(path, name), pointedTo(found.fieldType)
	}
	return path, nil
}

// checkPatch validates a patch of the spec, except for the types of its values. It refuses unknown fields, null, and
// objects that set nothing.
func (k Kind) checkPatch(patch map[string]any) error {
	if len(patch) == 0 {
		return errors.New("the patch is empty: set a field in it, or name the fields that the member decides in leaveToMember " +
			"(kubectl apply and Helm drop null values before they send a patch)")
	}
	return checkFields(k.specType(), patch, nil, false)
}

// checkFields validates the fields of an object. In a list an empty object is a value, and single fields cannot be left to
// the member.
func checkFields(in reflect.Type, node map[string]any, path []string, inList bool) error {
	shape := shapeOf(in)
	if shape != reflect.Struct && shape != reflect.Map {
		// The decoder validates the type of the value.
		return nil
	}
	var fields map[string]field
	if shape == reflect.Struct {
		fields = fieldsOf(in)
	}
	for _, name := range slices.Sorted(maps.Keys(node)) {
		below := fields[name].fieldType
		switch _, known := fields[name]; {
		case shape == reflect.Map:
			below = in.Elem()
		case !known:
			return unknownField(path, name, fields)
		}
		if err := checkValue(pointedTo(below), node[name], append(slices.Clone(path), name), inList); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(in reflect.Type, value any, path []string, inList bool) error {
	at := strings.Join(path, ".")
	switch value := value.(type) {
	case nil:
		if inList {
			return fmt.Errorf("%q is null: remove it from the patch", at)
		}
		return fmt.Errorf("%q is null: to leave the field to the member, remove it from the patch and write leaveToMember: [%s]", at, at)
	case string:
		if in == quantityType && !quantityPattern.MatchString(value) {
			return fmt.Errorf("%q is not a quantity: write one such as 512Mi, with at most 20 digits before and after the point", at)
		}
	case map[string]any:
		if len(value) == 0 && !inList && shapeOf(in) != reflect.Invalid {
			return fmt.Errorf("%q is empty and sets nothing: remove it, or write leaveToMember: [%s] to leave the field to the member", at, at)
		}
		return checkFields(in, value, path, inList)
	case []any:
		if shapeOf(in) != reflect.Slice {
			return nil
		}
		for i, item := range value {
			if err := checkValue(pointedTo(in.Elem()), item, []string{fmt.Sprintf("%s[%d]", at, i)}, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// unknownField returns the error for an unknown field, with a suggestion if there is a similar one.
func unknownField(path []string, name string, fields map[string]field) error {
	prefix := strings.Join(append(slices.Clone(path), ""), ".")
	if near := nearest(name, slices.Sorted(maps.Keys(fields))); near != "" {
		return fmt.Errorf("unknown field %q: did you mean %q?", prefix+name, prefix+near)
	}
	return fmt.Errorf("unknown field %q", prefix+name)
}

// nearest returns the name that is most similar to a mistyped one, or "" if none is similar enough.
func nearest(mistyped string, names []string) string {
	best, found := 1+len(mistyped)/4, ""
	for _, name := range names {
		if distance := distanceOf(strings.ToLower(mistyped), strings.ToLower(name)); distance < best || distance == best && found == "" {
			best, found = distance, name
		}
	}
	return found
}

// distanceOf returns the Levenshtein distance of two names.
func distanceOf(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// valueAt returns the value at a path, and whether there is one.
func valueAt(fields map[string]any, path []string) (any, bool) {
	value, found := fields[path[0]]
	if !found || len(path) == 1 {
		return value, found
	}
	nested, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return valueAt(nested, path[1:])
}

// dropField removes a field from a spec or from a set of managed fields, together with parent objects that become empty:
// an empty set of managed fields would stand for the object itself.
func dropField(fields map[string]any, path []string) {
	if len(path) == 1 {
		delete(fields, path[0])
		return
	}
	nested, ok := fields[path[0]].(map[string]any)
	if !ok {
		return
	}
	dropField(nested, path[1:])
	if _, whole := nested[itself]; len(nested) == 0 || whole && len(nested) == 1 {
		delete(fields, path[0])
	}
}

// setField sets a field, and creates parent objects as needed.
func setField(fields map[string]any, path []string, value any) {
	if len(path) == 1 {
		fields[path[0]] = value
		return
	}
	nested, ok := fields[path[0]].(map[string]any)
	if !ok {
		nested = map[string]any{}
		fields[path[0]] = nested
	}
	setField(nested, path[1:], value)
}
