// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// redisWith is a Redis as the hub's API server stores a small one.
func redisWith(overrides ...flotillav1.Override) *flotillav1.Redis {
	return &flotillav1.Redis{Spec: flotillav1.RedisSpec{
		Placement: &flotillav1.Placement{All: true, Overrides: overrides},
		Replicas:  new(int32(3)),
		Image:     "redis:8.2",
		Storage:   flotillav1.RedisStorage{Type: "PersistentVolumeClaim", Size: resource.MustParse("1024Mi")},
	}}
}

func patch(clusters []string, document string) flotillav1.Override {
	return flotillav1.Override{Clusters: clusters, Patch: &apiextensionsv1.JSON{Raw: []byte(document)}}
}

func TestSpecs(t *testing.T) {
	base := map[string]any{
		"replicas": int64(3), "image": "redis:8.2",
		"storage": map[string]any{"type": "PersistentVolumeClaim", "size": "1Gi"},
	}
	with := func(change func(map[string]any)) map[string]any {
		spec := Effective{Spec: base}.DeepCopy().Spec
		change(spec)
		return spec
	}
	eu := &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}
	tests := map[string]struct {
		overrides []flotillav1.Override
		want      map[string]any
		wantErr   string
	}{
		"the spec goes without placement and without fields nobody set": {want: base},
		"an override for another member does nothing": {
			overrides: []flotillav1.Override{patch([]string{"us-1"}, `{"replicas":5}`)}, want: base,
		},
		"overrides apply in order": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"replicas":5,"image":"redis:8.0"}`), {ClusterSelector: eu, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas":1}`)}}},
			want:      with(func(s map[string]any) { s["replicas"], s["image"] = int64(1), "redis:8.0" }),
		},
		"null leaves a field to the member": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"replicas":null,"storage":{"size":null}}`)},
			want: with(func(s map[string]any) {
				delete(s, "replicas")
				delete(s["storage"].(map[string]any), "size")
			}),
		},
		"a null in a new object is not kept": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"memory":{"maxMemory":null,"maxMemoryPercent":50}}`)},
			want:      with(func(s map[string]any) { s["memory"] = map[string]any{"maxMemoryPercent": int64(50)} }),
		},
		"a false that was asked for is applied": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"paused":false}`)},
			want:      with(func(s map[string]any) { s["paused"] = false }),
		},
		"quantities are written in one way": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"storage":{"size":"2048Mi"}}`)},
			want:      with(func(s map[string]any) { s["storage"].(map[string]any)["size"] = "2Gi" }),
		},
		"an unknown field is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{}`), patch([]string{"eu-1"}, `{"replica":5}`)},
			wantErr:   `override 2: unknown field "spec.replica"`,
		},
		"so is one in the wrong case": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"Replicas":5}`)}, wantErr: `override 1: unknown field "spec.Replicas"`,
		},
		"a value of another type is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"replicas":"many"}`)}, wantErr: "override 1: ",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			specs, err := NewSpecs(Redis, redisWith(tc.overrides...))
			if err != nil {
				t.Fatal(err)
			}
			got, err := specs.For("eu-1", map[string]string{"region": "eu"})
			if tc.wantErr != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Spec); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			if len(got.Hash) != 16 {
				t.Errorf("hash %q, want 16 characters", got.Hash)
			}
		})
	}
}

func TestNewSpecs_refuses(t *testing.T) {
	tests := map[string]flotillav1.Override{
		"placement in a patch":             patch([]string{"a"}, `{"placement":null}`),
		"a patch that is not an object":    patch([]string{"a"}, `[]`),
		"a patch that is null":             patch([]string{"a"}, `null`),
		"a missing patch":                  {Clusters: []string{"a"}},
		"a selector that cannot be parsed": {ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"-": ""}}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{}`)}},
	}
	for name, override := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := NewSpecs(Redis, redisWith(override)); err == nil || !strings.HasPrefix(err.Error(), "override 1: ") {
				t.Errorf("error %v, want one that names the override", err)
			}
		})
	}
}

func TestSpecs_hash_follows_the_spec_only(t *testing.T) {
	hash := func(object Object, kind Kind) string {
		specs, err := NewSpecs(kind, object)
		if err != nil {
			t.Fatal(err)
		}
		effective, err := specs.For("eu-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		return effective.Hash
	}
	plain := hash(redisWith(), Redis)
	if other := hash(redisWith(patch([]string{"us-1"}, `{"replicas":5}`)), Redis); other != plain {
		t.Error("an override for another member must not change the hash")
	}
	if other := hash(redisWith(patch([]string{"eu-1"}, `{"replicas":5}`)), Redis); other == plain {
		t.Error("a changed spec must change the hash")
	}
	pool := &flotillav1.NodePool{Spec: flotillav1.NodePoolSpec{Labels: map[string]flotillav1.LabelValue{"example.com/a": "b", "example.com/c": "d"}}}
	for range 20 {
		if hash(pool, NodePool) != hash(pool.DeepCopy(), NodePool) {
			t.Fatal("the hash must not depend on the order of a map")
		}
	}
}

func TestCovers(t *testing.T) {
	toleration := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	tests := map[string]struct {
		want   map[string]any
		object any
		covers bool
	}{
		"equal":                         {map[string]any{"replicas": int64(3)}, &flotillav1.RedisSpec{Replicas: new(int32(3)), Port: 6379}, true},
		"changed":                       {map[string]any{"replicas": int64(3)}, &flotillav1.RedisSpec{Replicas: new(int32(4))}, false},
		"missing":                       {map[string]any{"image": "redis:8.2"}, &flotillav1.RedisSpec{}, false},
		"zero is like absent":           {map[string]any{"paused": false}, &flotillav1.RedisSpec{}, true},
		"the member adds to a map":      {map[string]any{"nodeSelector": map[string]any{"a": "b"}}, &flotillav1.RedisSpec{NodeSelector: map[string]string{"a": "b", "c": "d"}}, true},
		"the member changes a key":      {map[string]any{"nodeSelector": map[string]any{"a": "b"}}, &flotillav1.RedisSpec{NodeSelector: map[string]string{"a": "c"}}, false},
		"the member adds to a list":     {map[string]any{"tolerations": []any{map[string]any{"key": "a", "operator": "Exists"}}}, &flotillav1.RedisSpec{Tolerations: []corev1.Toleration{toleration, {Key: "b"}}}, false},
		"a list is the same":            {map[string]any{"tolerations": []any{map[string]any{"key": "a", "operator": "Exists"}}}, &flotillav1.RedisSpec{Tolerations: []corev1.Toleration{toleration}}, true},
		"the member adds a keyed taint": {map[string]any{"taints": []any{map[string]any{"key": "a/b", "effect": "NoSchedule", "value": "x"}}}, &flotillav1.NodePoolSpec{Taints: []flotillav1.NodePoolTaint{{Key: "c/d", Effect: "NoSchedule"}, {Key: "a/b", Effect: "NoSchedule", Value: "x"}}}, true},
		"the member changes a taint":    {map[string]any{"taints": []any{map[string]any{"key": "a/b", "effect": "NoSchedule", "value": "x"}}}, &flotillav1.NodePoolSpec{Taints: []flotillav1.NodePoolTaint{{Key: "a/b", Effect: "NoSchedule", Value: "y"}}}, false},
		"the member removes a taint":    {map[string]any{"taints": []any{map[string]any{"key": "a/b", "effect": "NoSchedule"}}}, &flotillav1.NodePoolSpec{}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Covers(tc.want, tc.object)
			if err != nil || got != tc.covers {
				t.Errorf("covers %v (%v), want %v", got, err, tc.covers)
			}
		})
	}
}
