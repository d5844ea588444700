// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
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

// TestReasons keeps the list of known reasons in step with those that the member kinds declare.
func TestReasons(t *testing.T) {
	for _, file := range []string{"redis_conditions.go", "nodepool_conditions.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "api", "v1alpha1", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
				return true
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if Reason(value) != value {
				t.Errorf("%s of %s is not among the reasons that are taken from members", spec.Names[0].Name, file)
			}
			return true
		})
	}
	if got := Reason("HackedByMember"); got != "Other" {
		t.Errorf("a foreign reason became %q", got)
	}
}
