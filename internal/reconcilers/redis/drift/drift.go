// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drift compares objects with what they should be. What others add to an object is no difference.
package drift

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// Fields returns the fields that were set in a rendered object, without those that only the server sets.
func Fields(obj client.Object) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(fmt.Sprintf("converting %T: %v", obj, err)) // All are built-in kinds.
	}
	delete(content, "status")
	prune(content)
	return content
}

// prune removes nulls, such as the creationTimestamp of an embedded template.
func prune(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if field == nil {
				delete(value, key)
				continue
			}
			prune(field)
		}
	case []any:
		for _, element := range value {
			prune(element)
		}
	}
}

// Stamp adds the hash of what is applied to a rendered object, and returns its fields and the hash. The hash shows
// that a field has to be removed that the live object still has, which a comparison by field cannot. Fields that cannot
// change after creation are omitted from both.
func Stamp(desired client.Object) (content map[string]any, hash string) {
	content = Fields(desired)
	unstructured.RemoveNestedField(content, "spec", "volumeClaimTemplates")
	hash = redisspec.ShortHash(content)
	annotations := desired.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[flotillav1.AnnotationAppliedHash] = hash
	desired.SetAnnotations(annotations)
	// This cannot fail: metadata and annotations are maps.
	_ = unstructured.SetNestedField(content, hash, "metadata", "annotations", flotillav1.AnnotationAppliedHash)
	return content, hash
}

// Difference is a rendered field that an object does not have, or has with another value.
type Difference struct {
	// Path is the path of the field, with the keys of list elements in brackets.
	Path string
	// Have is the value in the object, or nil if it lacks the field.
	Have any
}

// Between returns the rendered fields that differ in a live object: another version was applied last, or a field
// was changed since. It ignores empty values and fields that typed objects from a cache do not have.
func Between(live, desired client.Object) []Difference {
	return To(live, Fields(desired))
}

// To is like Between for the fields of a rendered object, from which it removes empty values.
func To(live client.Object, want map[string]any) []Difference {
	delete(want, "apiVersion")
	delete(want, "kind")
	return uncovered("", Fields(live), want)
}

// Covers reports whether have contains everything in want.
func Covers(have, want any) bool { return len(uncovered("", have, want)) == 0 }

// WithoutIdentity returns the fields of an object without its metadata and the fields that typed objects from a cache
// lack.
func WithoutIdentity(obj client.Object) map[string]any {
	content := Fields(obj)
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		delete(content, key)
	}
	return content
}

// uncovered returns the parts of want that have lacks, sorted by path. Like the API server it pairs list elements by
// key, so that others may add elements; lists without keys must have the same length.
func uncovered(path string, have, want any) []Difference {
	here := []Difference{{Path: path, Have: have}}
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		if !ok && len(want) > 0 {
			return here
		}
		var all []Difference
		for _, key := range slices.Sorted(maps.Keys(want)) {
			all = append(all, uncovered(join(path, key), fields[key], want[key])...)
		}
		return all
	case []any:
		elements, ok := have.([]any)
		if !ok && len(want) > 0 || ok && len(want) == 0 && len(elements) > 0 {
			return here
		}
		return uncoveredList(path, elements, want)
	default:
		if !reflect.DeepEqual(have, want) {
			return here
		}
		return nil
	}
}

func uncoveredList(path string, have, want []any) []Difference {
	var all []Difference
	for i, element := range want {
		key, value := listKey(element)
		switch {
		case key != "":
			at := slices.IndexFunc(have, func(candidate any) bool {
				fields, ok := candidate.(map[string]any)
				return ok && fields[key] == value
			})
			var found any
			if at >= 0 {
				found = have[at]
			}
			all = append(all, uncovered(fmt.Sprintf("%s[%s]", path, value), found, element)...)
		case len(have) != len(want):
			return []Difference{{Path: path, Have: have}}
		default:
			all = append(all, uncovered(fmt.Sprintf("%s[%d]", path, i), have[i], element)...)
		}
	}
	return all
}

// join appends a field name or a map key to a path.
func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./-"):
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// listKey returns the key by which the elements of a rendered list are identified, if there is one. A volume may be
// mounted twice, so the path takes precedence over the name.
func listKey(element any) (key string, value any) {
	fields, ok := element.(map[string]any)
	if !ok {
		return "", nil
	}
	for _, key := range []string{"mountPath", "uid", "name"} {
		if value, found := fields[key].(string); found {
			return key, value
		}
	}
	return "", nil
}
