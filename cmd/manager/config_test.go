// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
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

func TestLoadConfig_reads_only_the_documented_variables(t *testing.T) {
	t.Setenv("FLOTILLA_HEALTH_BINDADDRESS", ":1")
	cfg, err := loadConfig([]string{"--hub-id=main"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Health.BindAddress != ":8081" {
		t.Errorf("a variable that is not documented sets %q", cfg.Health.BindAddress)
	}
	t.Setenv("FLOTILLA_HEALTH_BIND_ADDRESS", ":2")
	if cfg, err = loadConfig([]string{"--hub-id=main"}); err != nil || cfg.Health.BindAddress != ":2" {
		t.Errorf("the documented variable does not win: %v, %v", cfg, err)
	}
}

func TestUnknownVariables(t *testing.T) {
	got := unknownVariables([]string{
		"FLOTILLA_HUB_ID=main", "FLOTILLA_HUBID=main", "FLOTILLA_HEALTH_BINDADDRESS=:1", "PATH=/bin", "FLOTILLA=1",
		"FLOTILLA_MANAGER_METRICS_SERVICE_HOST=10.0.0.1", "FLOTILLA_MANAGER_METRICS_SERVICE_PORT_HTTPS=8443",
		"FLOTILLA_MANAGER_METRICS_PORT=tcp://10.0.0.1:8443", "FLOTILLA_MANAGER_METRICS_PORT_8443_TCP_ADDR=10.0.0.1",
	})
	if diff := cmp.Diff([]string{"FLOTILLA_HEALTH_BINDADDRESS", "FLOTILLA_HUBID"}, got); diff != "" {
		t.Errorf("unknown variables (-want +got):\n%s", diff)
	}
}

func TestLoadConfig_AllProblemsAtOnce(t *testing.T) {
	_, err := loadConfig([]string{
		"--hub-id=Not_A_Label", "--workers=0", "--removals-budget=-1", "--removals-share=101", "--rollouts-per-cluster=-1", "--hub-qps=-1", "--log-format=xml", "--tenancy=Closed", "--members-crds=Hope", "--registration-grace-seconds=0", "--profiling-bind-address=:6060", "--registration-sources=a:unheard-of",
		"--registration-allowed-cidrs=10.0.0.0/8,10.0.0.300/8,10.0.0.1/8", "--registration-denied-cidrs=::ffff:10.0.0.0/104,everything", "--registration-allowed-hosts=*.example.com,*,https://a",
	})
	if err == nil {
		t.Fatal("a bad configuration was accepted")
	}
	for _, want := range []string{
		"hub.id", "workers", "removals.budget", "removals.share", "rollouts.perCluster", "hub.qps", "log.format", "tenancy", "members.crds", "registration.graceSeconds", `profiling.bindAddress: ":6060"`, `convention "unheard-of"`,
		`allowedCIDRs: "10.0.0.300/8"`, "did you mean 10.0.0.0/8", `deniedCIDRs: "::ffff:10.0.0.0/104"`, `deniedCIDRs: "everything"`, `allowedHosts: "*"`, `allowedHosts: "https://a"`,
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
	if policy, _ := cfg.Registration.policy(); !reflect.DeepEqual(policy, registration.Policy{AllowedHosts: []string{}}) {
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
	want := registration.Policy{
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

// samples are values other than the default for every key, as a file has them; as text they are what flags and
// variables take.
var samples = map[string]any{
	"kubeconfig":                    "/etc/hub",
	"hub.id":                        "europe",
	"hub.qps":                       50,
	"registration.sources":          []any{map[string]any{"namespace": "fleet", "conventions": []any{"flotilla", "argo-cd"}}},
	"registration.allowSystemRoots": true,
	"registration.allowProxyURL":    true,
	"registration.allowedCIDRs":     []any{"10.0.0.0/8", "fd00::/8"},
	"registration.deniedCIDRs":      []any{"10.1.0.0/16", "10.2.0.0/16"},
	"registration.allowedHosts":     []any{"*.example.com", "10.3.0.1"},
	"registration.graceSeconds":     90,
	"members.namespaces":            []any{"default", "kube-cache"},
	"members.createNamespaces":      false,
	"members.copyMetadata":          []any{"example.com/", "team"},
	"members.crds":                  "Install",
	"removals.budget":               7,
	"removals.share":                10,
	"rollouts.perCluster":           5,
	"tenancy":                       "Enforced",
	"workers":                       3,
	"leaderElection.enabled":        false,
	"leaderElection.namespace":      "elsewhere",
	"metrics.bindAddress":           ":1",
	"health.bindAddress":            ":2",
	"profiling.bindAddress":         "127.0.0.1:3",
	"log.format":                    "json",
	"log.verbosity":                 4,
}

// sampleText is a sample as a flag or a variable has it.
func sampleText(key string) string {
	if key == "registration.sources" {
		return "fleet:flotilla+argo-cd"
	}
	list, ok := samples[key].([]any)
	if !ok {
		return fmt.Sprint(samples[key])
	}
	words := make([]string, 0, len(list))
	for _, word := range list {
		words = append(words, fmt.Sprint(word))
	}
	return strings.Join(words, ",")
}

// keysOf are the keys that a struct has, with the value of each.
func keysOf(value reflect.Value, prefix string) map[string]any {
	keys := map[string]any{}
	for i := range value.NumField() {
		key := prefix + value.Type().Field(i).Tag.Get("mapstructure")
		if field := value.Field(i); field.Kind() == reflect.Struct {
			maps.Copy(keys, keysOf(field, key+"."))
		} else {
			keys[key] = field.Interface()
		}
	}
	return keys
}

func TestConfig_every_key_can_be_set_by_flag_environment_and_file(t *testing.T) {
	defaults, err := loadConfig([]string{"--hub-id=hub"})
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Sorted(maps.Keys(keysOf(reflect.ValueOf(*defaults), "")))
	var set []string
	for _, s := range settings {
		set = append(set, s.key)
	}
	slices.Sort(set)
	if diff := cmp.Diff(known, set); diff != "" {
		t.Fatalf("keys of the struct and of the settings (-struct +settings):\n%s", diff)
	}
	if diff := cmp.Diff(known, slices.Sorted(maps.Keys(samples))); diff != "" {
		t.Fatalf("keys of the struct and of the samples of this test (-struct +samples):\n%s", diff)
	}
	for _, key := range known {
		t.Run(key, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			document := map[string]any{}
			nested, last := document, key
			for before, after, found := strings.Cut(last, "."); found; before, after, found = strings.Cut(last, ".") {
				below := map[string]any{}
				nested[before] = below
				nested, last = below, after
			}
			nested[last] = samples[key]
			content, err := yaml.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			var args []string
			if key != "hub.id" {
				args = append(args, "--hub-id=hub")
			}
			got := map[string]any{}
			read := func(way string, args ...string) {
				t.Helper()
				cfg, err := loadConfig(args)
				if err != nil {
					t.Fatalf("by %s: %v", way, err)
				}
				got[way] = keysOf(reflect.ValueOf(*cfg), "")[key]
			}
			read("flag", append(args, "--"+flagName(key)+"="+sampleText(key))...)
			read("file", append(args, "--config", file)...)
			t.Setenv(envName(key), sampleText(key))
			read("environment", args...)
			for _, way := range []string{"file", "environment"} {
				if diff := cmp.Diff(got["flag"], got[way]); diff != "" {
					t.Errorf("by flag and by %s (-flag +%s):\n%s", way, way, diff)
				}
			}
			if reflect.DeepEqual(got["flag"], keysOf(reflect.ValueOf(*defaults), "")[key]) {
				t.Errorf("set to %v, it is as by default: %v", samples[key], got["flag"])
			}
		})
	}
}

// TestConfig_the_page_has_every_key_with_its_default_and_no_other compares docs/operations.md with the settings.
func TestConfig_the_page_has_every_key_with_its_default_and_no_other(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `(FLOTILLA_[A-Z_]+)` \\|([^|]*)\\|")
	for _, match := range row.FindAllStringSubmatch(string(page), -1) {
		if match[2] != envName(match[1]) {
			t.Errorf("%s is read from %s, not from %s", match[1], envName(match[1]), match[2])
		}
		documented[match[1]] = strings.Trim(match[3], "` ")
	}
	for _, s := range settings {
		value, found := documented[s.key]
		want := fmt.Sprint(s.value)
		if list, ok := s.value.([]string); ok {
			want = strings.Join(list, ",")
		}
		if s.key == "hub.id" {
			want = "required"
		}
		if !found || value != want {
			t.Errorf("%s: the page says %q, the default is %q", s.key, value, want)
		}
		delete(documented, s.key)
	}
	if len(documented) > 0 {
		t.Errorf("the page has keys that do not exist: %v", documented)
	}
}
