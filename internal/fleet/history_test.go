// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestRevision_keeps_the_spec_and_the_overrides(t *testing.T) {
	redis := &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache", UID: "uid"},
		Spec: flotillav1.RedisSpec{Image: "redis:1", Placement: &flotillav1.Placement{
			Clusters: []string{"eu-1"}, Rollout: &flotillav1.Rollout{Paused: true},
			Overrides: []flotillav1.Override{{Clusters: []string{"eu-1"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas":1}`)}}},
		}},
	}
	revision, err := NewRevision(Redis, redis, "redis-cache-1")
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]any{
		"image": "redis:2", "unknown": "field", "placement": map[string]any{"clusters": []any{"eu-1", "us-1"}, "overrides": []any{}, "rollout": map[string]any{"batch": "3"}},
	}
	want := map[string]any{"image": "redis:1", "placement": map[string]any{
		"clusters": []any{"eu-1", "us-1"}, "rollout": map[string]any{"batch": "3"},
		"overrides": []any{map[string]any{"clusters": []any{"eu-1"}, "patch": map[string]any{"replicas": float64(1)}}},
	}}
	got, err := Restore(present, revision)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}

	redis.Spec.Placement.Overrides = nil
	without, err := NewRevision(Redis, redis, "redis-cache-2")
	if err != nil {
		t.Fatal(err)
	}
	got, err = Restore(present, without)
	if placement, _ := got["placement"].(map[string]any); err != nil || placement["overrides"] != nil || placement["clusters"] == nil {
		t.Errorf("restored without overrides: %v (%v)", got, err)
	}
	if _, err := Restore(present, &appsv1.ControllerRevision{}); err == nil {
		t.Error("a revision without a spec was restored")
	}
}

func TestRevisionName_differs_between_objects_and_specs(t *testing.T) {
	names := map[string]bool{}
	for _, uid := range []string{"a", "b"} {
		for _, template := range []string{"1", "2"} {
			redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 199) + "." + strings.Repeat("x", 53), UID: types.UID(uid)}}
			name, err := RevisionName(Redis, redis, template)
			if err != nil || len(validation.IsDNS1123Subdomain(name)) > 0 || !strings.HasPrefix(name, "redis-xxx") {
				t.Errorf("the name is %q (%v)", name, err)
			}
			names[name] = true
		}
	}
	if len(names) != 4 {
		t.Errorf("there are %d names", len(names))
	}
}
