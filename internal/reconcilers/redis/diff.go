// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"reflect"

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

// stampHash notes on a rendered object the hash of what is applied, and returns that hash. It tells when a field is to
// be given up that the live object still has: comparing field by field cannot. What stays as at birth is left out.
func stampHash(desired client.Object) string {
	content := fields(desired)
	unstructured.RemoveNestedField(content, "spec", "volumeClaimTemplates")
	hash := shortHash(content)
	annotations := desired.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[flotillav1.AnnotationAppliedHash] = hash
	desired.SetAnnotations(annotations)
	return hash
}

// differs tells whether the live object is not what was rendered: another version of it was applied last, or somebody
// has changed a field of ours since.
func differs(desired, live client.Object, hash string) bool {
	return live.GetAnnotations()[flotillav1.AnnotationAppliedHash] != hash || !covers(fields(live)["metadata"], fields(desired)["metadata"]) ||
		!covers(withoutIdentity(live), withoutIdentity(desired))
}

// withoutIdentity leaves out what typed objects from a cache do not have, and the metadata.
func withoutIdentity(obj client.Object) map[string]any {
	content := fields(obj)
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		delete(content, key)
	}
	return content
}

// covers tells whether have has everything that want has. Elements of lists are paired by their key, like the API server
// does, so that others may add theirs; lists without keys must be equal in length.
func covers(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return len(want) == 0 && have == nil
		}
		for key, field := range want {
			if !covers(have[key], field) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok {
			return len(want) == 0
		}
		return coversList(have, want)
	default:
		return reflect.DeepEqual(have, want)
	}
}

func coversList(have, want []any) bool {
	for i, element := range want {
		if key, value := listKey(element); key != "" {
			if !coversKeyed(have, key, value, element) {
				return false
			}
			continue
		}
		if len(have) != len(want) || !covers(have[i], element) {
			return false
		}
	}
	return len(want) > 0 || len(have) == 0
}

func coversKeyed(have []any, key string, value, want any) bool {
	for _, candidate := range have {
		if fields, ok := candidate.(map[string]any); ok && fields[key] == value {
			return covers(fields, want)
		}
	}
	return false
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
