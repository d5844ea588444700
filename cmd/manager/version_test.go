// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestVersion_is_linked_in_wherever_the_manager_is_built looks for the variables of this package in what links it.
func TestVersion_is_linked_in_wherever_the_manager_is_built(t *testing.T) {
	for _, path := range []string{"Makefile", "Dockerfile", "hack/image.sh"} {
		content, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		for _, variable := range []string{"-X main.version=$", "-X main.commit=$"} {
			if !strings.Contains(string(content), variable) {
				t.Errorf("%s does not have %s", path, variable)
			}
		}
	}
	version, commit = "v1.2.3", "abc"
	t.Cleanup(func() { version, commit = "", "" })
	if got, want := theBuild().String(), "flotilla-manager v1.2.3 (commit abc, "+runtime.Version()+", "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
}

func TestVersion_is_told_without_a_configuration(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"--version"}, &out); err != nil || !strings.HasPrefix(out.String(), "flotilla-manager ") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestVersion_is_a_metric(t *testing.T) {
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "flotilla_build_info" {
			continue
		}
		labels := map[string]string{}
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		b := theBuild()
		if labels["version"] != b.version || labels["commit"] != b.commit || labels["go_version"] != runtime.Version() || b.version == "" || b.commit == "" {
			t.Errorf("labels %v for %v", labels, b)
		}
		return
	}
	t.Error("there is no flotilla_build_info")
}
