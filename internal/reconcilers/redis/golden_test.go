// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
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
		"statefulset-in-memory": func(s *flotillav1.RedisSpec) {
			s.Storage.Type, s.Persistence.Mode, s.Auth.Mode, s.PodAntiAffinity = "EmptyDir", "None", "Disabled", "Disabled"
		},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redisOf(mutate)
			s := redisspec.Of(redis)
			got, err := yaml.Marshal(fields(renderStatefulSet(redis, &s, "hash", renderConfigMap(redis, &s).Name, nil)))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the StatefulSet differs from %s; -update writes it (-want +got):\n%s", path, diff)
			}
		})
	}
}
