// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

func TestLoadConfig_Precedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	content := "hub: {id: from-file}\nworkers: 3\nregistration:\n  sources:\n  - {namespace: fleet, conventions: [flotilla]}\nmembers: {copyMetadata: [example.com/]}\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	cfg, err := loadConfig([]string{"--config", file})
	if err != nil {
		t.Fatal(err)
	}
	want := []SourceConfig{{Namespace: "fleet", Conventions: []string{"flotilla"}}}
	if diff := cmp.Diff(want, cfg.Registration.Sources); diff != "" {
		t.Errorf("sources from the file (-want +got):\n%s", diff)
	}
	if cfg.Hub.ID != "from-file" || cfg.Workers != 3 || !cfg.Members.CreateNamespaces {
		t.Errorf("file and defaults: got %+v", cfg)
	}

	t.Setenv("FLOTILLA_HUB_ID", "from-env")
	t.Setenv("FLOTILLA_WORKERS", "4")
	t.Setenv("FLOTILLA_MEMBERS_CREATE_NAMESPACES", "false")
	t.Setenv("FLOTILLA_REGISTRATION_SOURCES", "a:flotilla,b:flotilla+cluster-api+argo-cd")
	cfg, err = loadConfig([]string{"--config", file, "--workers=5"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Hub.ID != "from-env" || cfg.Workers != 5 || cfg.Members.CreateNamespaces {
		t.Errorf("flag over environment over file: got %+v", cfg)
	}
	want = []SourceConfig{{"a", []string{"flotilla"}}, {"b", []string{"flotilla", "cluster-api", "argo-cd"}}}
	if diff := cmp.Diff(want, cfg.Registration.Sources); diff != "" {
		t.Errorf("sources from the environment (-want +got):\n%s", diff)
	}
}

func TestLoadConfig_AllProblemsAtOnce(t *testing.T) {
	_, err := loadConfig([]string{
		"--hub-id=Not_A_Label", "--workers=0", "--removals-budget=-1", "--log-format=xml", "--tenancy=Closed", "--members-crds=Hope", "--registration-sources=a:unheard-of",
		"--registration-allowed-cidrs=10.0.0.0/8,10.0.0.300/8,10.0.0.1/8", "--registration-denied-cidrs=::ffff:10.0.0.0/104,everything", "--registration-allowed-hosts=*.example.com,*,https://a",
	})
	if err == nil {
		t.Fatal("a bad configuration was accepted")
	}
	for _, want := range []string{
		"hub.id", "workers", "removals.budget", "log.format", "tenancy", "members.crds", `convention "unheard-of"`,
		`allowedCIDRs: "10.0.0.300/8"`, "10.0.0.0/8 is meant", `deniedCIDRs: "::ffff:10.0.0.0/104"`, `deniedCIDRs: "everything"`, `allowedHosts: "*"`, `allowedHosts: "https://a"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %s", err, want)
		}
	}
}

func TestLoadConfig_RulesOfTheSite(t *testing.T) {
	cfg, err := loadConfig([]string{"--hub-id=hub"})
	if err != nil {
		t.Fatal(err)
	}
	if policy, _ := cfg.Registration.policy(); !reflect.DeepEqual(policy, clusters.Policy{AllowedHosts: []string{}}) {
		t.Errorf("by default nothing is loosened, got %+v", policy)
	}
	t.Setenv("FLOTILLA_REGISTRATION_ALLOW_PROXY_URL", "true")
	t.Setenv("FLOTILLA_REGISTRATION_ALLOWED_CIDRS", "10.0.0.0/8,fd00::/8")
	cfg, err = loadConfig([]string{
		"--hub-id=hub", "--registration-allow-system-roots", "--registration-denied-cidrs=10.1.0.0/16", "--registration-allowed-hosts=*.example.com,10.2.0.1,API.example.org",
	})
	if err == nil || !strings.Contains(err.Error(), "API.example.org") {
		t.Errorf("names are written in small letters, got %v", err)
	}
	policy, _ := cfg.Registration.policy()
	want := clusters.Policy{
		AllowSystemRoots: true, AllowProxyURL: true,
		AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		DeniedCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		AllowedHosts: []string{"*.example.com", "10.2.0.1", "API.example.org"},
	}
	if !reflect.DeepEqual(policy, want) {
		t.Errorf("got %+v, want %+v", policy, want)
	}
}

func TestLoadConfig_UnknownKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("hub: {id: a, colour: red}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadConfig([]string{"--config", file}); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("an unknown key must be refused by name, got %v", err)
	}
}

func TestConfig_EveryKeyIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		row := "| `" + s.key + "` | `" + envName(s.key) + "` |"
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/operations.md lacks a row %q", row)
		}
	}
}
