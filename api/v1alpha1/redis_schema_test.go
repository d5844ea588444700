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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	for _, cases := range []map[string]schemaCase{redisValidations(), redisTransitions(), sentinelValidations(), sentinelTransitions()} {
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

// TestRedis_quantities_are_limited has quantities whose decoding or comparing costs seconds and gigabytes, and the manager
// decodes what it reads.
func TestRedis_quantities_are_limited(t *testing.T) {
	namespace := server.Namespace(t)
	create := func(value any, fields ...string) error {
		redis := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
		redis.SetGroupVersionKind(flotillav1.GroupVersion.WithKind("Redis"))
		redis.SetNamespace(namespace)
		redis.SetName("limited")
		if err := unstructured.SetNestedField(redis.Object, value, fields...); err != nil {
			t.Fatal(err)
		}
		return server.Client.Create(t.Context(), redis, client.DryRunAll)
	}
	for _, fields := range [][]string{
		{"spec", "memory", "maxMemory"}, {"spec", "storage", "size"}, {"spec", "resources", "limits", "memory"}, {"spec", "resources", "requests", "cpu"},
	} {
		for _, value := range []any{"1Gi", "1.5Gi", "0.5", "100m", "1e3", "2E", "+1", int64(1 << 40)} {
			if err := create(value, fields...); err != nil {
				t.Errorf("%v of %v is refused: %v", fields, value, err)
			}
		}
		for _, value := range []any{"1e-100000", "1e+1000", "1E100", strings.Repeat("9", 40), "0." + strings.Repeat("1", 40)} {
			if err := create(value, fields...); !apierrors.IsInvalid(err) {
				t.Errorf("%v of %.20v is not refused: %v", fields, value, err)
			}
		}
	}
}

func TestRedis_Samples(t *testing.T) {
	for _, path := range [][]string{{"config", "samples", "redis_cache.yaml"}, {"config", "samples", "redis_orders.yaml"}, {"config", "samples", "member", "redis_sessions.yaml"}} {
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
