// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// promtool runs Prometheus' own tool. Tests that need it are named TestPromtool_...: `make verify` runs them, and
// `make test` does not, because building promtool takes minutes.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	binary := ""
	for _, folder := range []string{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join("..", "..", "bin")} {
		path, err := filepath.Abs(filepath.Join(folder, "promtool"))
		must(t, err)
		if _, err := os.Stat(path); folder != "" && err == nil && binary == "" {
			binary = path
		}
	}
	if binary == "" {
		t.Fatal(`there is no promtool: run "make tools" first`)
	}
	if out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// rules are those of a file of Prometheus.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	content, err := os.ReadFile("alerts.yaml")
	must(t, err)
	read := rules{}
	must(t, yaml.Unmarshal(content, &read))
	if len(read.Groups) != 1 || len(read.Groups[0].Rules) < 10 {
		t.Fatalf("read %+v", read)
	}
	return read.Groups[0].Rules
}

// queries are the expressions of the dashboard, by the title of their panel.
func queries(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../grafana/fleet.json")
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Type string
			ID          int
			Targets     []struct{ RefID, Expr string }
		}
	}
	must(t, json.Unmarshal(content, &dashboard))
	found := map[string]string{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			found[fmt.Sprintf("%d %s %s", panel.ID, panel.Title, target.RefID)] = target.Expr
		}
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %q shows nothing", panel.Title)
		}
	}
	if len(found) < 15 {
		t.Fatalf("found %d queries only", len(found))
	}
	return found
}

func TestPromtool_alerts_fire_and_end(t *testing.T) {
	promtool(t, "check", "rules", "--lint-fatal", "alerts.yaml")
	promtool(t, "test", "rules", "alerts_test.yaml")
	tests, err := os.ReadFile("alerts_test.yaml")
	must(t, err)
	for _, alert := range alerts(t) {
		if times := strings.Count(string(tests), "alertname: "+alert.Alert+"\n"); times < 3 {
			t.Errorf("%s is looked at %d times: before, while and after it fires", alert.Alert, times)
		}
	}
}

// TestAlerts_have_a_section_in_the_page_that_they_lead_to looks for the headings.
func TestAlerts_have_a_section_in_the_page_that_they_lead_to(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	for _, alert := range alerts(t) {
		if !strings.Contains(string(page), "\n### "+alert.Alert+"\n") {
			t.Errorf("docs/operations.md has no section %s", alert.Alert)
		}
		if want := "/docs/operations.md#" + strings.ToLower(alert.Alert); !strings.HasSuffix(alert.Annotations["runbook_url"], want) {
			t.Errorf("%s leads to %q", alert.Alert, alert.Annotations["runbook_url"])
		}
	}
}

func TestPromtool_parses_the_dashboard(t *testing.T) {
	file := rules{}
	file.Groups = append(file.Groups, struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}{Name: "dashboard"})
	for _, expr := range queries(t) {
		record := fmt.Sprintf("panel:%d", len(file.Groups[0].Rules))
		file.Groups[0].Rules = append(file.Groups[0].Rules, rule{Record: record, Expr: expr})
	}
	content, err := yaml.Marshal(file)
	must(t, err)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	must(t, os.WriteFile(path, content, 0o600))
	promtool(t, "check", "rules", path)
}

// TestMetrics_that_are_asked_for_exist compares names with the table of docs/operations.md, which a test of cmd/manager
// compares with what is registered.
func TestMetrics_that_are_asked_for_exist(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	must(t, err)
	exprs := queries(t)
	for _, alert := range alerts(t) {
		exprs[alert.Alert] = alert.Expr
	}
	asked := map[string]bool{}
	name := regexp.MustCompile(`\b(flotilla|rest_client|controller_runtime|workqueue|go|process|leader_election)_\w+`)
	for where, expr := range exprs {
		names := name.FindAllString(expr, -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing of ours: %s", where, expr)
		}
		for _, metric := range names {
			base := strings.TrimSuffix(strings.TrimSuffix(metric, "_bucket"), "_count")
			asked[base] = true
			if !strings.Contains(string(page), "\n| `"+base+"` |") {
				t.Errorf("%s asks for %s, which docs/operations.md does not have", where, metric)
			}
		}
	}
	if len(asked) < 12 {
		t.Errorf("alerts and dashboard ask for %v only", asked)
	}
}
