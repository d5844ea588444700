// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestParsePath(t *testing.T) {
	for text, want := range map[string]string{
		"replicas":                      "replicas",
		"resources.limits":              "resources|limits",
		"resources.limits.memory":       "resources|limits|memory",
		"nodeSelector.example.com/zone": "nodeSelector|example.com/zone",
		"affinity.nodeAffinity":         "affinity|nodeAffinity",
		"tolerations":                   "tolerations",
		"replicsa":                      `unknown field "replicsa": did you mean "replicas"?`,
		"resources.limit":               `unknown field "resources.limit": did you mean "resources.limits"?`,
		"prot":                          `unknown field "prot": did you mean "port"?`,
		"nonsense":                      `unknown field "nonsense"`,
		"spec.replicas":                 `unknown field "spec.replicas": paths are relative to the spec, write "replicas"`,
		"replicas.count":                `"replicas" has no fields: name replicas`,
		"storage.size.value":            `"storage.size" has no fields: name storage.size`,
		"tolerations.key":               `"tolerations.key" is in a list: name the whole list, tolerations`,
		"auth.secretRef.name":           `"auth.secretRef.name" is required: it cannot be left to the member`,
	} {
		path, err := Redis.parsePath(text)
		got := strings.Join(path, "|")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestFields compares the fields of the Go types with those of the schemas: which there are, and which are required.
func TestFields(t *testing.T) {
	for _, kind := range []Kind{Redis, NodePool} {
		plural, group, _ := strings.Cut(kind.CRD, ".")
		raw, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", group+"_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(raw, crd); err != nil {
			t.Fatal(err)
		}
		checked := 0
		var walk func(schema apiextensionsv1.JSONSchemaProps, path []string)
		walk = func(schema apiextensionsv1.JSONSchemaProps, path []string) {
			for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
				at := append(slices.Clone(path), name)
				text := strings.Join(at, ".")
				_, err := kind.parsePath(text)
				if required := slices.Contains(schema.Required, name); required != (err != nil) {
					t.Errorf("%s: %s is required: %v, refused with: %v", kind.Name, text, required, err)
				}
				if pattern := schema.Properties[name].Pattern; strings.Contains(pattern, "KMGTPE") && pattern != quantityPattern.String() {
					t.Errorf("%s: the pattern of %s is %s, want that of overrides", kind.Name, text, pattern)
				}
				checked++
				walk(schema.Properties[name], at)
			}
		}
		walk(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], nil)
		if checked < 20 {
			t.Errorf("%s has %d fields", kind.Name, checked)
		}
	}
}
