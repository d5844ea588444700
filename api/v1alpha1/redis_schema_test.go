// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestRedis_each_rule_is_tried compares the rules of the schema with the tables that try them.
func TestRedis_each_rule_is_tried(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	decode(t, crd, "config", "crd", "bases", "flotilla.dev_redises.yaml")
	messages := map[string]bool{}
	collectMessages(*crd.Spec.Versions[0].Schema.OpenAPIV3Schema, messages)
	if len(messages) < 15 {
		t.Fatalf("the schema has only %d rules: %v", len(messages), messages)
	}
	var wants []string
	for _, cases := range []map[string]schemaCase{redisValidations(), redisTransitions()} {
		for _, tc := range cases {
			if tc.want != "" {
				wants = append(wants, tc.want)
			}
		}
	}
	for _, message := range slices.Sorted(maps.Keys(messages)) {
		if !slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(message, want) }) {
			t.Errorf("no case of a table is refused with %q", message)
		}
	}
}

// collectMessages adds what the rules of a schema and of all below it say.
func collectMessages(schema apiextensionsv1.JSONSchemaProps, messages map[string]bool) {
	for _, rule := range schema.XValidations {
		messages[rule.Message] = true
	}
	for _, property := range schema.Properties {
		collectMessages(property, messages)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		collectMessages(*schema.Items.Schema, messages)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		collectMessages(*schema.AdditionalProperties.Schema, messages)
	}
}

func decode(t *testing.T, into any, path ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		t.Fatalf("reading %s: %v", filepath.Join(path...), err)
	}
}

func TestRedis_Samples(t *testing.T) {
	for _, path := range [][]string{{"config", "samples", "redis_cache.yaml"}, {"config", "samples", "member", "redis_sessions.yaml"}} {
		t.Run(filepath.Join(path...), func(t *testing.T) {
			redis := &flotillav1.Redis{}
			decode(t, redis, path...)
			redis.Namespace = server.Namespace(t)
			if err := server.Client.Create(t.Context(), redis, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}
