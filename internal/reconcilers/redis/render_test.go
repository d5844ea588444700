// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

func redisOf(mutate ...func(*flotillav1.RedisSpec)) *flotillav1.Redis {
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid", Generation: 3}}
	for _, m := range mutate {
		m(&redis.Spec)
	}
	return redis
}

func TestRender_no_password_outside_the_secret(t *testing.T) {
	const secret = "correct-horse"
	redis := redisOf()
	s := redisspec.Of(redis)
	version, err := redisspec.PasswordVersion(types.NamespacedName{Namespace: "shop", Name: "web"}, secret)
	if err != nil {
		t.Fatal(err)
	}
	rendered := []any{
		renderConfigMap(redis, &s), renderRecord(redis, &s, topology{}, false), renderStatefulSet(redis, &s, redisspec.PodHash(&s, version), renderConfigMap(redis, &s).Name, nil), renderBudget(redis), renderServices(redis, &s, serviceTopology{}),
	}
	raw, err := json.Marshal(rendered)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), secret) || strings.Contains(string(raw), version) {
		t.Error("the password, or its bare version, is in a rendered object")
	}
}

func TestRenderStatefulSet_is_confined(t *testing.T) {
	redis := redisOf(func(s *flotillav1.RedisSpec) {
		s.Auth.Mode = "Disabled"
		s.Storage.Type = "EmptyDir"
		s.PodAntiAffinity = "Required"
	})
	s := redisspec.Of(redis)
	set := renderStatefulSet(redis, &s, "hash", renderConfigMap(redis, &s).Name, nil)
	pod := set.Spec.Template.Spec
	container := pod.Containers[0]
	if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser != 999 ||
		!*container.SecurityContext.ReadOnlyRootFilesystem || *container.SecurityContext.AllowPrivilegeEscalation || pod.HostNetwork {
		t.Error("the Pod may do more than it should")
	}
	if set.Spec.VolumeClaimTemplates != nil || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "data" && v.EmptyDir != nil }) {
		t.Error("EmptyDir storage is not on an emptyDir")
	}
	if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil }) {
		t.Error("a Secret is mounted although auth is disabled")
	}
	if pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		t.Error("the required anti-affinity is missing")
	}
}

func TestTopology_survives_a_round_trip(t *testing.T) {
	redis := redisOf(func(s *flotillav1.RedisSpec) { s.Replicas = ptr.To[int32](3) })
	s := redisspec.Of(redis)
	want := topology{initialized: true, passwordGenerated: true, addresses: map[string]string{"primary": "10.0.0.1", "0": "fd00::1"}}
	text := renderTopology(redis, &s, want, true)
	if diff := cmp.Diff(want, parseTopology(text), cmp.AllowUnexported(topology{})); diff != "" {
		t.Errorf("the record differs (-want +got):\n%s", diff)
	}
	wantText := `PEERS="web-1.web-headless web-2.web-headless"
FORCE_EMPTY_PRIMARY=true
INITIALIZED=true
PASSWORD_GENERATED=true
ADDRESS_0=fd00::1
ADDRESS_PRIMARY=10.0.0.1
`
	if diff := cmp.Diff(wantText, text); diff != "" {
		t.Errorf("topology.env differs (-want +got):\n%s", diff)
	}
	tampered := parseTopology("INITIALIZED=yes\nADDRESS_PRIMARY=$(reboot)\nADDRESS_OTHER=10.0.0.1\nnonsense")
	if tampered.initialized || len(tampered.addresses) > 0 {
		t.Errorf("nonsense was read as %v", tampered)
	}
}

func TestPasswordText(t *testing.T) {
	for value, want := range map[string]bool{"": false, "\n": false, "a": true, "a\n": true, "a\nb": false, "a\r\n": false, "a b\"\\": true, "é": true, strings.Repeat("a", 513): false} {
		if _, ok := passwordText([]byte(value)); ok != want {
			t.Errorf("password %q accepted: %t, want %t", value, ok, want)
		}
	}
}

func TestScripts_are_all_rendered(t *testing.T) {
	want := []string{"alive.sh", "client.sh", "live.sh", "ready.sh", "start.sh", "volume.sh", "writable.sh"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(scripts()))); diff != "" {
		t.Errorf("scripts differ (-want +got):\n%s", diff)
	}
}
