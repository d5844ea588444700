// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the Helm chart with Helm's own renderer.
package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"
)

type object map[string]any

// objects reads the objects of a text, by kind, namespace and name.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	found := map[string]object{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		read := object{}
		if err := yaml.UnmarshalStrict([]byte(document), &read); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(read) == 0 {
			continue
		}
		metadata := read["metadata"].(map[string]any)
		key := fmt.Sprint(read["kind"], " ", metadata["namespace"], " ", metadata["name"])
		if _, twice := found[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		found[key] = read
	}
	return found
}

// render does what helm template does.
func render(t *testing.T, values map[string]any) (map[string]object, error) {
	t.Helper()
	chart, err := loader.Load("../../charts/flotilla")
	if err != nil {
		t.Fatal(err)
	}
	merged, err := chartutil.CoalesceValues(chart, values)
	if err != nil {
		t.Fatal(err)
	}
	if err := chartutil.ValidateAgainstSchema(chart, merged); err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "flotilla", Namespace: "elsewhere", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	found := map[string]object{}
	for name, text := range files {
		if strings.HasSuffix(name, "/NOTES.txt") {
			continue
		}
		maps.Copy(found, objects(t, text))
	}
	return found, nil
}

func installed(t *testing.T) map[string]object {
	t.Helper()
	content, err := os.ReadFile("../../dist/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, string(content))
}

func text(t *testing.T, value any) string {
	t.Helper()
	content, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestChart_has_the_objects_of_the_manifest(t *testing.T) {
	want := installed(t)
	got, err := render(t, map[string]any{"hubID": "hub"})
	if err != nil {
		t.Fatal(err)
	}
	if len(want) < 15 {
		t.Errorf("dist/install.yaml has %d objects only", len(want))
	}
	for key, object := range want {
		if !reflect.DeepEqual(object, got[key]) {
			t.Errorf("%s: dist/install.yaml has\n%s\nthe chart has\n%s", key, text(t, object), text(t, got[key]))
		}
		delete(got, key)
	}
	for key := range got {
		t.Errorf("dist/install.yaml lacks %s of the chart", key)
	}
}

// TestChart_takes_values sets each of them, and expects that nothing else changes.
func TestChart_takes_values(t *testing.T) {
	got, err := render(t, map[string]any{
		"hubID": "europe", "image": map[string]any{"repository": "registry.example.com/flotilla", "tag": "v9"}, "replicas": 3,
		"namespace": "ops", "createNamespace": false, "registrationNamespace": "fleet", "extraArgs": []any{"--workers=32", "--tenancy=Enforced"},
		"resources": map[string]any{"requests": map[string]any{"cpu": "2", "memory": "1Gi"}, "limits": map[string]any{"memory": "4Gi"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../../dist/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(
		"flotilla-system", "ops", "flotilla-clusters", "fleet", "  replicas: 2\n", "  replicas: 3\n", "cpu: 100m", `cpu: "2"`, "memory: 256Mi", "memory: 1Gi", "memory: 2Gi", "memory: 4Gi",
		"- --hub-id=hub\n", "- --hub-id=europe\n        - --leader-election-namespace=ops\n        - --registration-sources=fleet:flotilla+multicluster-runtime\n",
		"- --log-format=json\n", "- --log-format=json\n        - --workers=32\n        - --tenancy=Enforced\n",
		"image: flotilla-dev/flotilla-manager:v0.1.0", "image: registry.example.com/flotilla:v9",
	).Replace(string(content))
	want := objects(t, changed)
	delete(want, "Namespace <nil> ops")
	for key, object := range want {
		if !reflect.DeepEqual(object, got[key]) {
			t.Errorf("%s: want\n%s\nthe chart has\n%s", key, text(t, object), text(t, got[key]))
		}
	}
	if len(got) != len(want) {
		t.Errorf("the chart has %d objects, want %d", len(got), len(want))
	}
}

// TestChart_places_and_configures_the_Pods_as_a_cluster_needs_it sets what most clusters leave alone.
func TestChart_places_and_configures_the_Pods_as_a_cluster_needs_it(t *testing.T) {
	named := func(name string) []any { return []any{map[string]any{"name": name}} }
	spec := map[string]any{
		"imagePullSecrets": named("registry"), "nodeSelector": map[string]any{"pool": "system"}, "priorityClassName": "system-cluster-critical",
		"tolerations":               []any{map[string]any{"key": "system", "operator": "Exists"}},
		"affinity":                  map[string]any{"nodeAffinity": map[string]any{}},
		"topologySpreadConstraints": []any{map[string]any{"maxSkew": 1.0, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}},
	}
	values := map[string]any{
		"hubID": "hub", "image": map[string]any{"pullPolicy": "Always"}, "podAnnotations": map[string]any{"example.com/owner": "platform"},
		"extraEnv": []any{map[string]any{"name": "HTTPS_PROXY", "value": "http://proxy"}}, "extraVolumes": named("authorities"),
		"extraVolumeMounts": []any{map[string]any{"name": "authorities", "mountPath": "/etc/ssl/certs"}},
	}
	for key, value := range spec {
		values[key] = value
	}
	got, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	want := installed(t)
	const deployment = "Deployment flotilla-system flotilla-manager"
	template := want[deployment]["spec"].(map[string]any)["template"].(map[string]any)
	template["metadata"].(map[string]any)["annotations"] = values["podAnnotations"]
	pod := template["spec"].(map[string]any)
	for key, value := range spec {
		pod[key] = value
	}
	container := pod["containers"].([]any)[0].(map[string]any)
	container["imagePullPolicy"] = "Always"
	for in, list := range map[string]map[string]any{"extraEnv": container, "extraVolumeMounts": container, "extraVolumes": pod} {
		key := map[string]string{"extraEnv": "env", "extraVolumeMounts": "volumeMounts", "extraVolumes": "volumes"}[in]
		list[key] = append(values[in].([]any), list[key].([]any)...)
	}
	for key, object := range want {
		if !reflect.DeepEqual(object, got[key]) {
			t.Errorf("%s: want\n%s\nthe chart has\n%s", key, text(t, object), text(t, got[key]))
		}
	}
}

func TestChart_refuses_values_that_are_misspelt(t *testing.T) {
	for _, values := range []map[string]any{
		{"tolerration": []any{}}, {"image": map[string]any{"pulPolicy": "Always"}}, {"imagePullSecrets": []any{"registry"}}, {"image": map[string]any{"pullPolicy": "Sometimes"}},
	} {
		values["hubID"] = "hub"
		if _, err := render(t, values); err == nil {
			t.Errorf("%v is taken", values)
		}
	}
}

// TestChart_writes_a_configuration_that_restarts_the_Pods also has a flag count more than what the chart sets itself.
func TestChart_writes_a_configuration_that_restarts_the_Pods(t *testing.T) {
	pod := func(values map[string]any) (checksum any, args []any, got map[string]object) {
		t.Helper()
		values["hubID"] = "hub"
		got, err := render(t, values)
		if err != nil {
			t.Fatal(err)
		}
		template := got["Deployment flotilla-system flotilla-manager"]["spec"].(map[string]any)["template"].(map[string]any)
		annotations, _ := template["metadata"].(map[string]any)["annotations"].(map[string]any)
		container := template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
		return annotations["checksum/config"], container["args"].([]any), got
	}
	one, args, got := pod(map[string]any{"config": map[string]any{"workers": 32}})
	if want := []any{"--hub-id=hub", "--config=/etc/flotilla/config.yaml", "--log-format=json"}; !reflect.DeepEqual(args, want) {
		t.Errorf("the arguments are %v, want %v", args, want)
	}
	data := got["ConfigMap flotilla-system flotilla-manager-config"]["data"]
	if want := map[string]any{"config.yaml": "workers: 32\n"}; !reflect.DeepEqual(data, want) {
		t.Errorf("the file is %v, want %v", data, want)
	}
	mounted := text(t, got["Deployment flotilla-system flotilla-manager"])
	for _, want := range []string{`"mountPath": "/etc/flotilla"`, `"name": "flotilla-manager-config"`} {
		if !strings.Contains(mounted, want) {
			t.Errorf("the Deployment lacks %s", want)
		}
	}
	other, args, _ := pod(map[string]any{"config": map[string]any{"log": map[string]any{"format": "text"}}})
	if one == nil || one == other {
		t.Errorf("the checksums are %v and %v", one, other)
	}
	if slices.Contains(args, any("--log-format=json")) {
		t.Errorf("a flag of the chart counts more than the file: %v", args)
	}
	if _, args, _ = pod(map[string]any{"extraArgs": []any{"--log-format=text"}}); args[len(args)-1] != "--log-format=text" {
		t.Errorf("the last flag counts, and it is not the value's: %v", args)
	}
}

func TestChart_brings_objects_for_monitoring(t *testing.T) {
	on := map[string]any{"enabled": true}
	got, err := render(t, map[string]any{
		"hubID": "hub", "namespace": "ops", "prometheusRule": on, "dashboard": on,
		"serviceMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	monitor := got["ServiceMonitor ops flotilla"]
	if labels := monitor["metadata"].(map[string]any)["labels"]; !reflect.DeepEqual(labels, map[string]any{"release": "prometheus"}) {
		t.Errorf("the labels are %v", labels)
	}
	content, err := os.ReadFile("../../dist/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := objects(t, string(content))["PrometheusRule flotilla-system flotilla"]["spec"]; !reflect.DeepEqual(got["PrometheusRule ops flotilla"]["spec"], want) {
		t.Errorf("the rules are not those of dist/prometheusrule.yaml: %s", text(t, got["PrometheusRule ops flotilla"]))
	}
	dashboard, err := os.ReadFile("../../config/grafana/fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	board := got["ConfigMap ops flotilla-dashboard"]
	if data := board["data"].(map[string]any)["fleet.json"]; strings.TrimSpace(fmt.Sprint(data)) != strings.TrimSpace(string(dashboard)) {
		t.Error("the dashboard is not config/grafana/fleet.json")
	}
	if labels := board["metadata"].(map[string]any)["labels"]; !reflect.DeepEqual(labels, map[string]any{"grafana_dashboard": "1"}) {
		t.Errorf("the labels of the dashboard are %v", labels)
	}
}

// TestChart_needs_a_name_for_the_hub guards against an upgrade that does not repeat it, which would rename the hub.
func TestChart_needs_a_name_for_the_hub(t *testing.T) {
	if _, err := render(t, nil); err == nil || !strings.Contains(err.Error(), "hubID is the name of this hub") {
		t.Errorf("without a name: %v", err)
	}
}

func TestChart_refuses_values(t *testing.T) {
	for name, test := range map[string]struct {
		key   string
		value any
		want  string
	}{
		"misspelled":          {"hubId", "prod", "hubId"},
		"misspelled, nested":  {"image", map[string]any{"repo": "registry.example.com/flotilla"}, "repo"},
		"not a label":         {"hubID", "my hub: x", "hubID"},
		"not a number":        {"replicas", "two", "replicas"},
		"not a list":          {"extraArgs", "--workers=32", "extraArgs"},
		"not a flag":          {"extraArgs", []any{"workers=32"}, "extraArgs"},
		"misspelled, monitor": {"serviceMonitor", map[string]any{"enable": true}, "enable"},
		"not a namespace":     {"registrationNamespace", "Fleet", "registrationNamespace"},
	} {
		t.Run(name, func(t *testing.T) {
			values := map[string]any{"hubID": "prod"}
			values[test.key] = test.value
			if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that names %q", err, test.want)
			}
		})
	}
}

// TestChart_keeps_what_the_fleet_depends_on guards against values, such as createNamespace, that take an object out of a
// release: Helm would delete it.
func TestChart_keeps_what_the_fleet_depends_on(t *testing.T) {
	got, err := render(t, map[string]any{"hubID": "hub"})
	if err != nil {
		t.Fatal(err)
	}
	for key, object := range got {
		if !strings.HasPrefix(key, "Namespace ") && !strings.HasPrefix(key, "CustomResourceDefinition ") {
			continue
		}
		annotations, _ := object["metadata"].(map[string]any)["annotations"].(map[string]any)
		if annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("Helm may delete %s", key)
		}
	}
}
