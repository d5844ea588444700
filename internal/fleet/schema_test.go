// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestListKeys keeps the table of keyed lists in step with the schemas.
func TestListKeys(t *testing.T) {
	found := map[string][]string{}
	var walk func(schema apiextensionsv1.JSONSchemaProps)
	walk = func(schema apiextensionsv1.JSONSchemaProps) {
		for name, property := range schema.Properties {
			if property.XListType != nil && *property.XListType == "map" {
				found[name] = property.XListMapKeys
			}
			walk(property)
			if property.Items != nil && property.Items.Schema != nil {
				walk(*property.Items.Schema)
			}
		}
	}
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
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		delete(spec.Properties, "placement")
		walk(spec)
	}
	if diff := cmp.Diff(listKeys, found); diff != "" {
		t.Errorf("lists with keys in the schemas (-table +schemas):\n%s", diff)
	}
}
