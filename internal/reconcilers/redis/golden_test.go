// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis/drift"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRenderStatefulSet_to_the_letter shows in testdata what a StatefulSet is, whole.
func TestRenderStatefulSet_to_the_letter(t *testing.T) {
	for name, mutate := range map[string]func(*flotillav1.RedisSpec){
		"statefulset-defaults": func(*flotillav1.RedisSpec) {},
		"statefulset-everything": func(s *flotillav1.RedisSpec) {
			s.Image, s.Port, s.Replicas = "valkey/valkey:9.0", 7000, ptr.To[int32](3)
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
			s.Storage.Size, s.Storage.StorageClassName = resource.MustParse("5Gi"), new("fast")
			s.Auth.SecretRef = &flotillav1.RedisSecretRef{Name: "ours", Key: "redis"}
			s.NodeSelector = map[string]string{"disk": "ssd"}
			s.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: "Exists"}}
			s.PodAntiAffinity, s.PriorityClassName, s.RuntimeClassName = "Required", "high", "node-pool-web"
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}}
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: "DoNotSchedule"}}
			s.PodMetadata = &flotillav1.RedisPodMetadata{
				// The schema refuses these; ours win all the same.
				Labels:      map[string]flotillav1.RedisMetadataValue{"team": "shop", flotillav1.LabelRedis: "other"},
				Annotations: map[string]flotillav1.RedisMetadataValue{"example.com/scrape": "true", flotillav1.AnnotationSpecHash: "other"},
			}
			s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
			s.ImagePullPolicy, s.TerminationGracePeriodSeconds = "Always", ptr.To[int64](90)
		},
		"statefulset-sentinel": sentinelSpec,
		"statefulset-in-memory": func(s *flotillav1.RedisSpec) {
			s.Storage.Type, s.Persistence.Mode, s.Auth.Mode, s.PodAntiAffinity = "EmptyDir", "None", "Disabled", "Disabled"
		},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redisOf(mutate)
			s := redisspec.Of(redis)
			config := renderConfigMap(redis, &s).Name
			if redisspec.IsSentinel(&s) {
				// Its scripts change without a change of anything else.
				config = configName(redis.Name, "hash")
			}
			got, err := yaml.Marshal(drift.Fields(renderStatefulSet(redis, &s, "hash", config, nil)))
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, name+".yaml", string(got))
		})
	}
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; -update writes it (-want +got):\n%s", path, diff)
	}
}

func sentinelSpec(s *flotillav1.RedisSpec) {
	s.Mode, s.Replicas = flotillav1.RedisModeSentinel, ptr.To[int32](3)
}

// TestRenderSentinel_to_the_letter shows in testdata what else differs in mode Sentinel: the Services, while the mode
// changes and afterwards, the settings, the record, and the configuration.
func TestRenderSentinel_to_the_letter(t *testing.T) {
	redis := redisOf(sentinelSpec)
	s := redisspec.Of(redis)
	for name, topology := range map[string]serviceTopology{
		"sentinel-services.yaml": {}, "sentinel-services-changing.yaml": {direct: true}, "sentinel-services-of-five.yaml": {ordinals: 5},
	} {
		var text strings.Builder
		for _, service := range renderServices(redis, &s, topology) {
			got, err := yaml.Marshal(map[string]any{service.Name: drift.Fields(service)["spec"]})
			if err != nil {
				t.Fatal(err)
			}
			text.Write(got)
		}
		compareGolden(t, name, text.String())
	}
	data := renderConfigMap(redis, &s).Data
	compareGolden(t, "sentinel-settings.env", data[keySettings])
	compareGolden(t, "sentinel-redis.conf", data[keyConfig])
	record := topology{initialized: true, passwordGenerated: true, migrating: true, forcedPrimary: "2", addresses: map[string]string{
		suffixPrimary: "10.0.0.9", suffixAny: "10.0.0.8", "0": "10.0.0.10", "1": "10.0.0.11", "2": "10.0.0.12", "4": "10.0.0.14",
	}}
	text := renderTopology(redis, &s, record, false)
	compareGolden(t, "sentinel-topology.env", text)
	record.forcedPrimary, record.known = "", true
	if diff := cmp.Diff(record, parseTopology(text), cmp.AllowUnexported(topology{})); diff != "" {
		t.Errorf("the record is read differently (-want +got):\n%s", diff)
	}
	for script, content := range sentinelScripts() {
		if data[script] != content {
			t.Errorf("the ConfigMap has another %s", script)
		}
	}
	for _, container := range renderPodSpec(redis, &s, "config").Containers {
		if script := filepath.Base(container.Command[1]); data[script] == "" {
			t.Errorf("container %s starts with %s, which is not in the ConfigMap", container.Name, script)
		}
	}
}
