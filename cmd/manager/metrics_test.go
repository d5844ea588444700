// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestMetrics_are_those_of_the_page compares what the packages of the manager register with the table in
// docs/operations.md.
func TestMetrics_are_those_of_the_page(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `((?:flotilla|rest_client)_[a-z_]+)` \\| ([a-z_, ]*) \\| .+ \\|$")
	for _, match := range row.FindAllStringSubmatch(string(page), -1) {
		if _, twice := documented[match[1]]; twice {
			t.Errorf("%s is there twice", match[1])
		}
		documented[match[1]] = sorted(match[2])
	}

	registry, ok := ctrlmetrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatalf("%T does not say what is registered", ctrlmetrics.Registry)
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		registry.Describe(descs)
	}()
	registered := map[string]string{}
	described := regexp.MustCompile(`fqName: "([^"]+)".*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)
	value := regexp.MustCompile(`="[^"]*"`)
	for desc := range descs {
		match := described.FindStringSubmatch(desc.String())
		if match == nil {
			t.Fatalf("cannot read %s", desc)
		}
		if strings.HasPrefix(match[1], "flotilla_") || match[1] == "rest_client_requests_total" {
			registered[match[1]] = sorted(value.ReplaceAllString(match[2], "") + "," + match[3])
		}
	}
	if diff := cmp.Diff(documented, registered); diff != "" {
		t.Errorf("metrics and their labels (-page +registered):\n%s", diff)
	}
}

// sorted puts a list of labels in order.
func sorted(list string) string {
	labels := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(labels)
	return strings.Join(labels, ", ")
}
