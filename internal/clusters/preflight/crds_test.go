// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// ofKind returns the definition of a kind, and a copy that a member may have made its own.
func ofKind(t *testing.T, kind string) (definition, *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	for _, own := range definitions() {
		if own.kind == kind {
			return own, own.object.DeepCopy()
		}
	}
	t.Fatalf("there is no definition of %s", kind)
	return definition{}, nil
}

// edit changes the schema of spec.
func edit(object *apiextensionsv1.CustomResourceDefinition, change func(map[string]apiextensionsv1.JSONSchemaProps)) {
	schema := object.Spec.Versions[0].Schema.OpenAPIV3Schema
	spec := schema.Properties["spec"]
	change(spec.Properties)
	schema.Properties["spec"] = spec
}

func TestDefinitions_are_compared(t *testing.T) {
	type fields = map[string]apiextensionsv1.JSONSchemaProps
	lose := func(name string) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(object *apiextensionsv1.CustomResourceDefinition) {
			edit(object, func(f fields) { delete(f, name) })
		}
	}
	gain := func(object *apiextensionsv1.CustomResourceDefinition) {
		edit(object, func(f fields) { f["invented"] = apiextensionsv1.JSONSchemaProps{Type: "string"} })
	}
	number := func(revision string) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(object *apiextensionsv1.CustomResourceDefinition) {
			object.Annotations[flotillav1.AnnotationCRDRevision] = revision
		}
	}
	tests := map[string]struct {
		change                 []func(*apiextensionsv1.CustomResourceDefinition)
		older, newer, outdated bool
		lacks                  []clusters.MissingField
	}{
		"the same":                  {},
		"without a field":           {change: []func(*apiextensionsv1.CustomResourceDefinition){lose("priorityClassName")}, older: true, outdated: true, lacks: []clusters.MissingField{{Path: "spec.priorityClassName"}}},
		"without a field and older": {change: []func(*apiextensionsv1.CustomResourceDefinition){lose("podAntiAffinity"), number("0")}, older: true, outdated: true, lacks: []clusters.MissingField{{Path: "spec.podAntiAffinity", Default: `"Preferred"`}}},
		"without placement":         {change: []func(*apiextensionsv1.CustomResourceDefinition){lose("placement")}, older: true, outdated: true},
		"with a lower number":       {change: []func(*apiextensionsv1.CustomResourceDefinition){number("0")}, older: true, outdated: true},
		"without a number": {change: []func(*apiextensionsv1.CustomResourceDefinition){func(object *apiextensionsv1.CustomResourceDefinition) {
			object.Annotations = nil
		}}, older: true, outdated: true},
		"with a higher number": {change: []func(*apiextensionsv1.CustomResourceDefinition){number("999")}, newer: true},
		"with a field more":    {change: []func(*apiextensionsv1.CustomResourceDefinition){gain}, newer: true},
		"edited both ways":     {change: []func(*apiextensionsv1.CustomResourceDefinition){gain, lose("priorityClassName")}, older: true, newer: true, lacks: []clusters.MissingField{{Path: "spec.priorityClassName"}}},
		"newer without a field": {
			change: []func(*apiextensionsv1.CustomResourceDefinition){lose("priorityClassName"), number("999")}, older: true, newer: true, lacks: []clusters.MissingField{{Path: "spec.priorityClassName"}},
		},
		"with a version more": {change: []func(*apiextensionsv1.CustomResourceDefinition){func(object *apiextensionsv1.CustomResourceDefinition) {
			next := object.Spec.Versions[0].DeepCopy()
			next.Name = "v1"
			object.Spec.Versions = append([]apiextensionsv1.CustomResourceDefinitionVersion{*next}, object.Spec.Versions...)
		}}, newer: true},
		"without our version": {change: []func(*apiextensionsv1.CustomResourceDefinition){func(object *apiextensionsv1.CustomResourceDefinition) {
			object.Spec.Versions[0].Name = "v1"
		}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			own, theirs := ofKind(t, "Redis")
			for _, change := range tc.change {
				change(theirs)
			}
			state := stateOf(own, theirs)
			if state.older() != tc.older || state.newer() != tc.newer || state.outdated() != tc.outdated {
				t.Errorf("older %t, newer %t, outdated %t; want %t, %t, %t", state.older(), state.newer(), state.outdated(), tc.older, tc.newer, tc.outdated)
			}
			if diff := cmp.Diff(tc.lacks, state.lacks); diff != "" {
				t.Errorf("what is lacking (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefinitions_are_compared_to_the_bottom(t *testing.T) {
	object := func(fields map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: fields}
	}
	text := apiextensionsv1.JSONSchemaProps{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(` "x" `)}}
	pair := object(map[string]apiextensionsv1.JSONSchemaProps{"kept": text, "lost": text})
	single := object(map[string]apiextensionsv1.JSONSchemaProps{"kept": text})
	within := func(leaf apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
		fields := map[string]apiextensionsv1.JSONSchemaProps{
			"list": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &leaf}},
			"map":  {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &leaf}},
			"leaf": leaf,
			"any":  {Type: "object", XPreserveUnknownFields: new(true)},
		}
		if len(leaf.Properties) > 1 {
			whole := leaf
			whole.Default = &apiextensionsv1.JSON{Raw: []byte(`{"kept":"y"}`)}
			fields["whole"], fields["any"] = whole, leaf
		}
		schema := object(fields)
		return &schema
	}
	got := map[string]string{}
	compareSchemas(within(pair), within(single), "", func(path string, field *apiextensionsv1.JSONSchemaProps) { got[path] = defaultOf(field) })
	want := map[string]string{"list[].lost": `"x"`, "map.*.lost": `"x"`, "leaf.lost": `"x"`, "whole": `{"kept":"y","lost":"x"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDefinitions_have_a_number_for_each_schema makes whoever changes a schema raise its number, by which members are
// upgraded. The number is in a marker of the type.
func TestDefinitions_have_a_number_for_each_schema(t *testing.T) {
	for kind, want := range map[string]string{
		"NodePool": "7 7cb1adc1ce47",
		"Redis":    "8 f8f640f716b2",
	} {
		own, _ := ofKind(t, kind)
		document, err := json.Marshal(own.object.Spec)
		if err != nil {
			t.Fatal(err)
		}
		var spec any
		if err := json.Unmarshal(document, &spec); err != nil {
			t.Fatal(err)
		}
		if document, err = json.Marshal(withoutDescriptions(spec)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %.6x", revisionOf(own.object), sha256.Sum256(document)); got != want {
			t.Errorf("the schema of %s has changed: raise the number of its marker flotilla.dev/crd-revision, then write it here, with %q", kind, got)
		}
	}
}

// withoutDescriptions leaves out the words of a schema.
func withoutDescriptions(node any) any {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if _, ok := value.(string); ok && key == "description" {
				delete(node, key)
				continue
			}
			withoutDescriptions(value)
		}
	case []any:
		for _, item := range node {
			withoutDescriptions(item)
		}
	}
	return node
}
