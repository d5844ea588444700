// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

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
)

// fields returns an object of ours as the fields that we set: what only the server fills is left out.
func fields(obj client.Object) map[string]any {
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

// stampHash notes on a rendered object the hash of what is applied, and returns its fields and that hash. It tells when a
// field is to be given up that the live object still has: comparing field by field cannot. What stays as at birth is left
// out of both.
func stampHash(desired client.Object) (content map[string]any, hash string) {
	content = fields(desired)
	unstructured.RemoveNestedField(content, "spec", "volumeClaimTemplates")
	hash = shortHash(content)
	annotations := desired.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[flotillav1.AnnotationAppliedHash] = hash
	desired.SetAnnotations(annotations)
	// It cannot fail: metadata and annotations are maps.
	_ = unstructured.SetNestedField(content, hash, "metadata", "annotations", flotillav1.AnnotationAppliedHash)
	return content, hash
}

// difference is a field of ours that an object does not have as asked.
type difference struct {
	// Path names it, with the keys of list elements in brackets.
	Path string
	// Have is what the object has; nil when it lacks the field.
	Have any
}

// differences returns the fields of what was rendered that a live object does not have: another version of it was applied
// last, or somebody has changed a field of ours since. What says nothing, or what typed objects from a cache do not have,
// is left out.
func differences(live, desired client.Object) []difference {
	return differencesTo(live, fields(desired))
}

// differencesTo is differences to the fields of what was rendered, which lose what says nothing.
func differencesTo(live client.Object, want map[string]any) []difference {
	delete(want, "apiVersion")
	delete(want, "kind")
	return uncovered("", fields(live), want)
}

// covers tells whether have has everything that want has.
func covers(have, want any) bool { return len(uncovered("", have, want)) == 0 }

// withoutIdentity leaves out what typed objects from a cache do not have, and the metadata.
func withoutIdentity(obj client.Object) map[string]any {
	content := fields(obj)
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		delete(content, key)
	}
	return content
}

// uncovered returns what want has and have does not, in the order of the paths. Elements of lists are paired by their key,
// like the API server does, so that others may add theirs; lists without keys must be equal in length.
func uncovered(path string, have, want any) []difference {
	here := []difference{{Path: path, Have: have}}
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		if !ok && len(want) > 0 {
			return here
		}
		var all []difference
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

func uncoveredList(path string, have, want []any) []difference {
	var all []difference
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
			return []difference{{Path: path, Have: have}}
		default:
			all = append(all, uncovered(fmt.Sprintf("%s[%d]", path, i), have[i], element)...)
		}
	}
	return all
}

// join puts the name of a field, or the key of a map, behind a path.
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

// listKey returns the key by which the elements of a list of ours are told apart, if they are. A volume may be mounted
// twice, so the path comes before the name.
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
