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

func leave(clusters []string, fields ...string) flotillav1.Override {
	return flotillav1.Override{Clusters: clusters, LeaveToMember: fields}
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
		wantLeft  string
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
		"a field is left to the member": {
			overrides: []flotillav1.Override{leave([]string{"eu-1"}, "replicas", "storage.size")},
			want: with(func(s map[string]any) {
				delete(s, "replicas")
				delete(s["storage"].(map[string]any), "size")
			}),
			wantLeft: "replicas,storage.size",
		},
		"an object without its last field goes": {
			overrides: []flotillav1.Override{leave([]string{"eu-1"}, "storage.type", "storage.size")},
			want:      with(func(s map[string]any) { delete(s, "storage") }),
			wantLeft:  "storage.size,storage.type",
		},
		"a field that nobody sets is left, too": {
			overrides: []flotillav1.Override{leave([]string{"eu-1"}, "priorityClassName", "nodeSelector.example.com/zone")},
			want:      base, wantLeft: "nodeSelector.example.com/zone,priorityClassName",
		},
		"a later override sets what an earlier one leaves": {
			overrides: []flotillav1.Override{leave([]string{"eu-1"}, "replicas", "image"), patch([]string{"eu-1"}, `{"replicas":5}`)},
			want:      with(func(s map[string]any) { delete(s, "image"); s["replicas"] = int64(5) }),
			wantLeft:  "image",
		},
		"a part of what an earlier one leaves": {
			overrides: []flotillav1.Override{leave([]string{"eu-1"}, "resources"), patch([]string{"eu-1"}, `{"resources":{"limits":{"memory":"1Gi"}}}`)},
			want: with(func(s map[string]any) {
				s["resources"] = map[string]any{"limits": map[string]any{"memory": "1Gi"}}
			}),
			wantLeft: "resources",
		},
		"a later override leaves what an earlier one sets": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"replicas":5}`), leave([]string{"eu-1"}, "replicas"), leave([]string{"eu-1"}, "replicas")},
			want:      with(func(s map[string]any) { delete(s, "replicas") }),
			wantLeft:  "replicas",
		},
		"what is left in another member": {
			overrides: []flotillav1.Override{leave([]string{"us-1"}, "replicas")}, want: base,
		},
		"a false that was asked for is applied": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"paused":false}`)},
			want:      with(func(s map[string]any) { s["paused"] = false }),
		},
		"quantities are written in one way": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"storage":{"size":"2048Mi"}}`)},
			want:      with(func(s map[string]any) { s["storage"].(map[string]any)["size"] = "2Gi" }),
		},
		"a quantity that is expensive to decode is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"resources":{"limits":{"memory":"1e-1000000000"}}}`)},
			wantErr:   `override 1: "resources.limits.memory" is not a quantity`,
		},
		"an unknown field is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"port":7000}`), patch([]string{"eu-1"}, `{"replicsa":5}`)},
			wantErr:   `override 2: unknown field "replicsa": did you mean "replicas"?`,
		},
		"so is one in the wrong case": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"Replicas":5}`)}, wantErr: `override 1: unknown field "Replicas": did you mean "replicas"?`,
		},
		"so is one in an object of a list": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"tolerations":[{"keys":"a"}]}`)}, wantErr: `override 1: unknown field "tolerations[0].keys": did you mean "tolerations[0].key"?`,
		},
		"null is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"replicas":null}`)}, wantErr: `override 1: "replicas" is null: to leave the field to the member, remove it from the patch and write leaveToMember: [replicas]`,
		},
		"also a nested one": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"replicas":1,"storage":{"size":null}}`)}, wantErr: `override 1: "storage.size" is null: `,
		},
		"and one in a list": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"tolerations":[null]}`)}, wantErr: `override 1: "tolerations[0]" is null: `,
		},
		"an empty patch is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{}`)}, wantErr: `override 1: the patch is empty: `,
		},
		"what a client has left of a nested null is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"replicas":1,"storage":{}}`)}, wantErr: `override 1: "storage" is empty and sets nothing: `,
		},
		"an empty object in a list is a value": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{}}]}`)},
			want: with(func(s map[string]any) {
				s["topologySpreadConstraints"] = []any{map[string]any{"maxSkew": int64(1), "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": map[string]any{}}}
			}),
		},
		"an override that does nothing is refused": {
			overrides: []flotillav1.Override{{Clusters: []string{"eu-1"}}}, wantErr: "override 1: it does nothing: ",
		},
		"a field cannot be set and left": {
			overrides: []flotillav1.Override{{Clusters: []string{"eu-1"}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"storage":{"size":"2Gi"}}`)}, LeaveToMember: []string{"storage"}}},
			wantErr:   `override 1: "storage" is both in patch and in leaveToMember: `,
		},
		"a field that cannot be left": {
			overrides: []flotillav1.Override{leave([]string{"eu-1"}, "replicsa")}, wantErr: `override 1: leaveToMember: unknown field "replicsa": did you mean "replicas"?`,
		},
		"placement cannot be left": {
			overrides: []flotillav1.Override{leave([]string{"eu-1"}, "placement.all")}, wantErr: "override 1: leaveToMember: placement is the hub's",
		},
		"placement cannot be patched": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `{"placement":{"all":true}}`)}, wantErr: "override 1: placement cannot be overridden",
		},
		"a patch that is not an object is refused": {
			overrides: []flotillav1.Override{patch([]string{"eu-1"}, `[]`)}, wantErr: "override 1: the patch is not an object",
		},
		"an override that is invalid for another member only": {
			overrides: []flotillav1.Override{patch([]string{"us-1"}, `{"replicsa":5}`)}, want: base,
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
			if got.LeftNames() != tc.wantLeft {
				t.Errorf("left to the member: %q, want %q", got.LeftNames(), tc.wantLeft)
			}
			if len(got.Hash) != 16 {
				t.Errorf("hash %q, want 16 characters", got.Hash)
			}
		})
	}
}

func TestNewSpecs_refuses_a_selector_that_does_not_parse(t *testing.T) {
	override := patch(nil, `{"replicas":5}`)
	override.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"-": ""}}
	if _, err := NewSpecs(Redis, redisWith(override)); err == nil || !strings.HasPrefix(err.Error(), "override 1: ") {
		t.Errorf("error %v, want one that names the override", err)
	}
}

func TestSpecs_Invalid_names_an_override_that_is_for_no_member(t *testing.T) {
	specs, err := NewSpecs(Redis, redisWith(patch([]string{"eu-1"}, `{"replicas":5}`), patch([]string{"nowhere"}, `{"imagee":"redis:7"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if err := specs.Invalid(); err == nil || err.Error() != `override 2: unknown field "imagee": did you mean "image"?` {
		t.Errorf("error %v", err)
	}
	if _, err := specs.For("eu-1", nil); err != nil {
		t.Errorf("an override for another member stops this one: %v", err)
	}
}

func TestEffective_Onto_keeps_what_the_member_has_of_its_own(t *testing.T) {
	effective := Effective{
		Spec: map[string]any{"image": "redis:8.2", "resources": map[string]any{"limits": map[string]any{"cpu": "1"}}},
		Left: [][]string{{"replicas"}, {"resources", "limits", "memory"}, {"storage", "size"}, {"image"}},
	}
	got, err := effective.Onto(map[string]any{
		"image": "redis:7", "replicas": int64(7), "port": int64(1), "resources": map[string]any{"limits": map[string]any{"cpu": "9", "memory": "1Gi"}},
	})
	want := map[string]any{"image": "redis:8.2", "replicas": int64(7), "resources": map[string]any{"limits": map[string]any{"cpu": "1", "memory": "1Gi"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
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

func TestUncovered(t *testing.T) {
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
			got, err := Uncovered(tc.want, tc.object)
			if err != nil || (len(got) == 0) != tc.covers {
				t.Errorf("uncovered %v (%v), want that it is covered: %v", got, err, tc.covers)
			}
		})
	}
}
