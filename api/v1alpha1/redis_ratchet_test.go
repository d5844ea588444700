// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestRedis_Scale(t *testing.T) {
	namespace := server.Namespace(t)
	redis := newRedis(func(r *flotillav1.Redis) { r.Namespace = namespace })
	if err := server.Client.Create(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	for replicas, want := range map[int32]string{-1: "greater than or equal to 0", 0: "", 9: "", 10: "less than or equal to 9"} {
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: redis.Name}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		compareAnswer(t, server.Client.SubResource("scale").Update(t.Context(), redis, client.WithSubResourceBody(scale)), want)
	}
}

// TestRedis_Ratcheting stores an object that the schema refuses, as an earlier schema may have let it in.
func TestRedis_Ratcheting(t *testing.T) {
	// A copy of the definition, so that other tests keep theirs.
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "flotilla.dev_redises.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	strict := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(raw), "flotilla.dev", "ratchet.example.com")), strict); err != nil {
		t.Fatal(err)
	}
	lenient := strict.DeepCopy()
	spec := lenient.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	for _, field := range []string{"config", "port"} {
		schema := spec.Properties[field]
		schema.XValidations = nil
		spec.Properties[field] = schema
	}
	if err := server.Client.Create(t.Context(), lenient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Client.Delete(context.Background(), strict) })

	redis := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"port": int64(9121), "config": map[string]any{"loadmodule": "/x.so"}},
	}}
	redis.SetGroupVersionKind(schema.GroupVersionKind{Group: "ratchet.example.com", Version: "v1alpha1", Kind: "Redis"})
	redis.SetNamespace(server.Namespace(t))
	redis.SetName("old")
	until := func(what string, done func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil }); err != nil {
			t.Fatalf("waiting until %s: %v", what, err)
		}
	}
	until("the kind is served", func() bool { return server.Client.Create(t.Context(), redis) == nil })
	before := lenient.DeepCopy()
	lenient.Spec = strict.Spec
	// Its controllers write its status meanwhile.
	if err := server.Client.Patch(t.Context(), lenient, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	changed := func(value any, fields ...string) error {
		obj := redis.DeepCopy()
		if err := unstructured.SetNestedField(obj.Object, value, fields...); err != nil {
			t.Fatal(err)
		}
		return server.Client.Update(t.Context(), obj, client.DryRunAll)
	}
	until("the new schema holds", func() bool { return changed(int64(26379), "spec", "port") != nil })
	compareAnswer(t, changed(int64(3), "spec", "replicas"), "")
	compareAnswer(t, changed(int64(6379), "spec", "port"), "")
	compareAnswer(t, changed("/y.so", "spec", "config", "loadmodule"), "only tunables")
	compareAnswer(t, changed(int64(26379), "spec", "port"), "choose another")
}
