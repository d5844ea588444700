// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// TestMetrics_are_those_of_the_page compares what is registered here with the table in docs/operations.md.
func TestMetrics_are_those_of_the_page(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `((?:flotilla|rest_client)_[a-z_]+)` \\| ([^|]*) \\|")
	for _, match := range row.FindAllStringSubmatch(string(page), -1) {
		documented[match[1]] = match[2]
	}
	// The manager registers this one, with its labels; see cmd/manager/version.go.
	delete(documented, "flotilla_build_info")

	registered := map[string]string{}
	described := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	for _, collector := range append(slices.Clone(collectors), prometheus.Collector(restRequests)) {
		descs := make(chan *prometheus.Desc, 10)
		collector.Describe(descs)
		close(descs)
		for desc := range descs {
			match := described.FindStringSubmatch(desc.String())
			if match == nil {
				t.Fatalf("cannot read %s", desc)
			}
			registered[match[1]] = strings.ReplaceAll(match[2], ",", ", ")
		}
	}
	if diff := cmp.Diff(documented, registered); diff != "" {
		t.Errorf("metrics and their labels (-page +registered):\n%s", diff)
	}
}
