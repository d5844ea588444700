// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// renderWith renders a kustomization that has a base, if any, and components of config.
func renderWith(t *testing.T, base string, components ...string) resmap.ResMap {
	t.Helper()
	files := filesys.MakeFsInMemory()
	for _, folder := range []string{"argocd", "grafana", "kube-state-metrics", "prometheus"} {
		entries, err := os.ReadDir("../" + folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			content, err := os.ReadFile("../" + folder + "/" + entry.Name())
			if err == nil {
				err = files.WriteFile("/config/"+folder+"/"+entry.Name(), content)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	overlay := "kind: Kustomization\nresources: [base.yaml]\ncomponents: [../config/" + strings.Join(components, ", ../config/") + "]\n"
	for name, content := range map[string]string{"kustomization.yaml": overlay, "base.yaml": base} {
		if err := files.WriteFile("/site/"+name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/site")
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

const argoCD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {url: https://argocd.example.com}\n"

func TestComponents_render(t *testing.T) {
	rendered := renderWith(t, argoCD, "prometheus", "argocd", "kube-state-metrics")
	var got []string
	for _, resource := range rendered.Resources() {
		got = append(got, resource.GetKind()+" "+resource.GetNamespace()+"/"+resource.GetName())
		data := resource.GetDataMap()
		switch resource.GetName() {
		case "argocd-cm":
			if data["url"] == "" || data["resource.customizations.health.flotilla.dev_Redis"] == "" {
				t.Errorf("the ConfigMap of Argo CD has %d keys", len(data))
			}
		case "flotilla-dashboard":
			if data["fleet.json"] == "" || resource.GetLabels()["grafana_dashboard"] != "1" {
				t.Errorf("the dashboard has labels %v", resource.GetLabels())
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"ConfigMap argocd/argocd-cm", "ConfigMap flotilla-system/flotilla-dashboard", "ConfigMap flotilla-system/flotilla-kube-state-metrics",
		"PrometheusRule flotilla-system/flotilla", "ServiceMonitor flotilla-system/flotilla",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rendered are %v, want %v", got, want)
	}
}

// TestKubeStateMetrics_names_fields_that_exist compares the paths with the schemas: a field that is not there has no series.
func TestKubeStateMetrics_names_fields_that_exist(t *testing.T) {
	content, err := os.ReadFile("../kube-state-metrics/custom-resource-state.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Spec struct {
			Resources []struct {
				GroupVersionKind struct{ Group, Version, Kind string }
				LabelsFromPath   map[string][]string
				Metrics          []struct {
					Name string
					Each struct {
						Gauge struct {
							Path           []string
							LabelsFromPath map[string][]string
							ValueFrom      []string
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	plurals := map[string]string{"Redis": "redises", "NodePool": "nodepools", "MemberCluster": "memberclusters"}
	looked := 0
	for _, resource := range config.Spec.Resources {
		kind := resource.GroupVersionKind.Kind
		schema := schemaOf(t, plurals[kind])
		for _, metric := range resource.Metrics {
			gauge := metric.Each.Gauge
			at, err := follow(schema, gauge.Path)
			if err != nil {
				t.Errorf("%s %s: %v", kind, metric.Name, err)
				continue
			}
			looked++
			paths := [][]string{}
			for _, path := range gauge.LabelsFromPath {
				paths = append(paths, path)
			}
			if len(gauge.ValueFrom) > 0 {
				paths = append(paths, gauge.ValueFrom)
			}
			for _, path := range paths {
				if _, err := follow(at, path); err != nil {
					t.Errorf("%s %s: %v", kind, metric.Name, err)
				}
			}
		}
	}
	if looked != 13 {
		t.Errorf("looked at %d metrics", looked)
	}
}

// schemaOf reads the schema of a kind.
func schemaOf(t *testing.T, plural string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	content, err := os.ReadFile("../crd/bases/flotilla.dev_" + plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, definition); err != nil {
		t.Fatal(err)
	}
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// follow follows a path into a schema. The items of a list stand for the list.
func follow(schema *apiextensionsv1.JSONSchemaProps, path []string) (*apiextensionsv1.JSONSchemaProps, error) {
	for _, name := range path {
		next, found := schema.Properties[name]
		if !found {
			return nil, fmt.Errorf("%v: there is no field %q", path, name)
		}
		schema = &next
		if schema.Items != nil {
			schema = schema.Items.Schema
		}
	}
	return schema, nil
}
