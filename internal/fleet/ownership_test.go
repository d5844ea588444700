// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func owner(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "flotilla.dev/v1alpha1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestHandOver(t *testing.T) {
	placement := func(fields string) metav1.ManagedFieldsEntry { return owner("placement", "Apply", fields) }
	member := func(fields string) metav1.ManagedFieldsEntry { return owner(MemberManager, "Update", fields) }
	team := owner("kubectl", "Apply", `{"f:spec":{"f:replicas":{}}}`)
	limits := `{"f:spec":{"f:resources":{"f:limits":{".":{},"f:cpu":{},"f:memory":{}}}}}`
	tests := map[string]struct {
		managed []metav1.ManagedFieldsEntry
		left    string
		want    []string
	}{
		"nothing is left":             {managed: []metav1.ManagedFieldsEntry{placement(`{"f:spec":{"f:replicas":{}}}`), team}},
		"placement does not have it":  {managed: []metav1.ManagedFieldsEntry{placement(`{"f:spec":{"f:image":{}}}`), team}, left: "replicas"},
		"it has been handed over":     {managed: []metav1.ManagedFieldsEntry{placement(`{"f:spec":{"f:image":{}}}`), member(`{"f:spec":{"f:replicas":{}}}`)}, left: "replicas"},
		"an update is not an apply":   {managed: []metav1.ManagedFieldsEntry{owner("placement", "Update", `{"f:spec":{"f:replicas":{}}}`)}, left: "replicas"},
		"a field is handed over":      {managed: []metav1.ManagedFieldsEntry{placement(`{"f:metadata":{},"f:spec":{"f:image":{},"f:replicas":{}}}`), team}, left: "replicas", want: []string{`placement {"f:metadata":{},"f:spec":{"f:image":{}}}`, `kubectl {"f:spec":{"f:replicas":{}}}`, `flotilla-member {"f:spec":{"f:replicas":{}}}`}},
		"one more is handed over":     {managed: []metav1.ManagedFieldsEntry{member(`{"f:spec":{"f:replicas":{}}}`), placement(`{"f:spec":{"f:image":{},"f:port":{}}}`)}, left: "image replicas", want: []string{`placement {"f:spec":{"f:port":{}}}`, `flotilla-member {"f:spec":{"f:image":{},"f:replicas":{}}}`}},
		"one is taken back":           {managed: []metav1.ManagedFieldsEntry{member(`{"f:spec":{"f:image":{},"f:replicas":{}}}`)}, left: "image", want: []string{`flotilla-member {"f:spec":{"f:image":{}}}`}},
		"all are taken back":          {managed: []metav1.ManagedFieldsEntry{member(`{"f:spec":{"f:replicas":{}}}`), team}, want: []string{`kubectl {"f:spec":{"f:replicas":{}}}`}},
		"the key of a map":            {managed: []metav1.ManagedFieldsEntry{placement(limits)}, left: "resources.limits.memory", want: []string{`placement {"f:spec":{"f:resources":{"f:limits":{".":{},"f:cpu":{}}}}}`, `flotilla-member {"f:spec":{"f:resources":{"f:limits":{"f:memory":{}}}}}`}},
		"the last key of a map":       {managed: []metav1.ManagedFieldsEntry{placement(`{"f:spec":{"f:image":{},"f:resources":{"f:limits":{".":{},"f:memory":{}}}}}`)}, left: "resources.limits.memory", want: []string{`placement {"f:spec":{"f:image":{}}}`, `flotilla-member {"f:spec":{"f:resources":{"f:limits":{"f:memory":{}}}}}`}},
		"an object with all below it": {managed: []metav1.ManagedFieldsEntry{placement(limits)}, left: "resources", want: []string{`placement {}`, `flotilla-member ` + limits}},
		"an object, a part of which has been handed over": {
			managed: []metav1.ManagedFieldsEntry{placement(`{"f:spec":{"f:resources":{"f:limits":{".":{},"f:cpu":{}}}}}`), member(`{"f:spec":{"f:resources":{"f:limits":{"f:memory":{}}}}}`)},
			left:    "resources", want: []string{`placement {}`, `flotilla-member ` + limits},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var left [][]string
			for text := range strings.FieldsSeq(tc.left) {
				left = append(left, strings.Split(text, "."))
			}
			got, changed, err := HandOver(tc.managed, "placement", left, metav1.NewTime(noon))
			if err != nil || changed != (tc.want != nil) {
				t.Fatalf("changed: %v, %v", changed, err)
			}
			if !changed {
				return
			}
			var entries []string
			for _, entry := range got {
				entries = append(entries, fmt.Sprintf("%s %s", entry.Manager, entry.FieldsV1.GetRawString()))
			}
			if diff := cmp.Diff(tc.want, entries); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, again, err := HandOver(got, "placement", left, metav1.NewTime(noon)); again || err != nil {
				t.Errorf("a second time changes them: %v, %v", again, err)
			}
		})
	}
}
