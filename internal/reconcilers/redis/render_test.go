// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func redisOf(mutate ...func(*flotillav1.RedisSpec)) *flotillav1.Redis {
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid", Generation: 3}}
	for _, m := range mutate {
		m(&redis.Spec)
	}
	return redis
}

func TestRenderConfig(t *testing.T) {
	limit := func(quantity string) func(*flotillav1.RedisSpec) {
		return func(s *flotillav1.RedisSpec) {
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(quantity)}
		}
	}
	for name, tc := range map[string]struct {
		mutate func(*flotillav1.RedisSpec)
		want   []string
	}{
		"defaults":                   {func(*flotillav1.RedisSpec) {}, []string{"appendonly yes", "appendfsync everysec", `save ""`, "maxmemory 0", "maxmemory-policy noeviction"}},
		"75 % of the limit":          {limit("400Mi"), []string{"maxmemory 314572800"}},
		"a huge limit":               {limit("8E"), []string{"maxmemory 6000000000000000000"}},
		"RDB":                        {func(s *flotillav1.RedisSpec) { s.Persistence.Mode = "RDB" }, []string{"appendonly no", "save 3600 1 300 100 60 10000"}},
		"both":                       {func(s *flotillav1.RedisSpec) { s.Persistence.Mode = "AOFAndRDB" }, []string{"appendonly yes", "save 3600 1 300 100 60 10000"}},
		"writes with a replica only": {func(s *flotillav1.RedisSpec) { s.Replication.MinReplicasToWrite = 1 }, []string{"min-replicas-to-write 1", "min-replicas-max-lag 10"}},
		"none":                       {func(s *flotillav1.RedisSpec) { s.Persistence.Mode = "None" }, []string{"appendonly no", `save ""`}},
		"fsync and eviction": {func(s *flotillav1.RedisSpec) {
			s.Persistence.AppendFsync = "always"
			s.Memory = &flotillav1.RedisMemory{MaxMemory: new(resource.MustParse("1M")), MaxMemoryPolicy: "allkeys-lru"}
		}, []string{"appendfsync always", "maxmemory 1000000", "maxmemory-policy allkeys-lru"}},
		"a percentage": {func(s *flotillav1.RedisSpec) {
			limit("1000")(s)
			s.Memory = &flotillav1.RedisMemory{MaxMemoryPercent: ptr.To[int32](50)}
		}, []string{"maxmemory 500"}},
		"directives of the user": {func(s *flotillav1.RedisSpec) {
			s.Config = map[string]flotillav1.ConfigValue{"hz": "20", "timeout": "5"}
		}, []string{"hz 20", "timeout 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(redisOf(tc.mutate))
			lines := strings.Split(renderConfig(&s), "\n")
			for _, want := range tc.want {
				if !slices.Contains(lines, want) {
					t.Errorf("no line %q in:\n%s", want, strings.Join(lines, "\n"))
				}
			}
		})
	}
}

func TestRenderConfig_to_the_letter(t *testing.T) {
	s := spec(redisOf(func(s *flotillav1.RedisSpec) {
		s.Config = map[string]flotillav1.ConfigValue{"timeout": "5", "hz": "20", "repl-diskless-sync-delay": "3"}
		s.Memory = &flotillav1.RedisMemory{MaxMemory: new(resource.MustParse("1Mi"))}
	}))
	// What the operator owns comes last, because the last one wins.
	want := `repl-diskless-sync-delay 1
repl-timeout 15
hz 20
repl-diskless-sync-delay 3
timeout 5
bind * -::*
daemonize no
supervised no
logfile ""
appendonly yes
appendfsync everysec
save ""
maxmemory 1048576
maxmemory-policy noeviction
repl-diskless-load disabled
replica-read-only yes
replica-serve-stale-data yes
replica-ignore-disk-write-errors yes
repl-ping-replica-period 5
shutdown-timeout 10
`
	if diff := cmp.Diff(want, renderConfig(&s)); diff != "" {
		t.Errorf("redis.conf differs (-want +got):\n%s", diff)
	}
}

func TestConfigProblem(t *testing.T) {
	for directive, value := range map[string]string{
		"requirepass": "x", "dir": "/tmp", "Save": "1", "save": "1 1", "include": "/etc/passwd", "maxmemory": "1", "user": "x", "aclfile": "x", "enable-module-command": "yes",
		"hz": "1\nrequirepass x", "timeout": `"`, "databases": "", "tcp-backlog": `\`, "hz\nport": "1", "replicaof": "a 1", "tls-port": "1",
	} {
		if configProblem(map[string]flotillav1.ConfigValue{directive: flotillav1.ConfigValue(value)}) == "" {
			t.Errorf("directive %q with value %q is accepted", directive, value)
		}
	}
}

// TestConfigProblem_accepts_what_the_schema_does keeps the two lists from contradicting each other.
func TestConfigProblem_accepts_what_the_schema_does(t *testing.T) {
	crd, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "crd", "bases", "flotilla.dev_redises.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The rule spans lines, and quotes are doubled inside a YAML string.
	rule := regexp.MustCompile(`(?s)k in \[(.*?)\]`).FindSubmatch(crd)
	if rule == nil {
		t.Fatal("the schema has no list of directives")
	}
	allowed := regexp.MustCompile(`[a-z][a-z0-9-]+`).FindAllString(strings.ReplaceAll(string(rule[1]), "\n", " "), -1)
	if len(allowed) < 50 {
		t.Fatalf("the schema's list has only %d directives", len(allowed))
	}
	for _, directive := range allowed {
		if problem := configProblem(map[string]flotillav1.ConfigValue{directive: "1"}); problem != "" {
			t.Error(problem)
		}
	}
}

func TestRender_no_password_outside_the_secret(t *testing.T) {
	const secret = "correct-horse"
	redis := redisOf()
	s := spec(redis)
	version, err := passwordVersion(types.NamespacedName{Namespace: "shop", Name: "web"}, secret)
	if err != nil {
		t.Fatal(err)
	}
	rendered := []any{
		renderConfigMap(redis, &s), renderRecord(redis, &s, topology{}, false), renderStatefulSet(redis, &s, podHash(&s, version), renderConfigMap(redis, &s).Name, nil), renderBudget(redis), renderServices(redis, &s),
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
	s := spec(redis)
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

func TestPodHash_changes_only_with_what_a_pod_starts_with(t *testing.T) {
	base := spec(redisOf())
	for name, tc := range map[string]struct {
		mutate          func(*flotillav1.RedisSpec)
		wiring, restart bool
	}{
		"replicas":     {func(s *flotillav1.RedisSpec) { s.Replicas = ptr.To[int32](5) }, false, false},
		"paused":       {func(s *flotillav1.RedisSpec) { s.Paused = true }, false, false},
		"storage size": {func(s *flotillav1.RedisSpec) { s.Storage.Size = resource.MustParse("2Gi") }, false, false},
		"written defaults": {func(s *flotillav1.RedisSpec) {
			s.Port, s.Persistence.Mode, s.PodAntiAffinity = 6379, "AOF", "Preferred"
		}, false, false},
		"image":         {func(s *flotillav1.RedisSpec) { s.Image = "redis:8.4" }, false, true},
		"config":        {func(s *flotillav1.RedisSpec) { s.Config = map[string]flotillav1.ConfigValue{"hz": "20"} }, false, true},
		"lag of nobody": {func(s *flotillav1.RedisSpec) { s.Replication.MinReplicasMaxLagSeconds = 5 }, false, false},
		"affinity":      {func(s *flotillav1.RedisSpec) { s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} }, false, true},
		"spread": {func(s *flotillav1.RedisSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: "DoNotSchedule"}}
		}, false, true},
		"labels of Pods": {func(s *flotillav1.RedisSpec) {
			s.PodMetadata = &flotillav1.RedisPodMetadata{Labels: map[string]flotillav1.RedisMetadataValue{"team": "shop"}}
		}, false, true},
		"no labels of Pods": {func(s *flotillav1.RedisSpec) { s.PodMetadata = &flotillav1.RedisPodMetadata{} }, false, false},
		"service":           {func(s *flotillav1.RedisSpec) { s.Service.Type = corev1.ServiceTypeLoadBalancer }, false, false},
		"no budget":         {func(s *flotillav1.RedisSpec) { s.PodDisruptionBudget.Enabled = new(false) }, false, false},
		"supervised":        {func(s *flotillav1.RedisSpec) { s.UpdateStrategy.Primary = flotillav1.RedisPrimarySupervised }, false, false},
		"min replicas":      {func(s *flotillav1.RedisSpec) { s.Replication.MinReplicasToWrite = 1 }, false, true},
		"port":              {func(s *flotillav1.RedisSpec) { s.Port = 7000 }, true, true},
		"auth":              {func(s *flotillav1.RedisSpec) { s.Auth.Mode = "Disabled" }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := podHash(&base, "v1")
			changed := spec(redisOf(tc.mutate))
			after := podHash(&changed, "v1")
			if (before != after) != tc.restart || follows(after, before) == tc.wiring {
				t.Errorf("hash goes from %s to %s, want another: %t, another wiring: %t", before, after, tc.restart, tc.wiring)
			}
		})
	}
	// A known value, so that a new manager notices when it would restart every Pod there is.
	if got, want := podHash(&base, "v1"), "c115440094566fcb-3fa1d90dbc178817"; got != want {
		t.Errorf("the hash of an unchanged spec is %s, want %s", got, want)
	}
}

func TestPodHash_of_a_new_manager_restarts_nothing(t *testing.T) {
	for name, tc := range map[string]struct {
		mutate    func(*flotillav1.RedisSpec)
		passwords []string
		want      string
	}{
		"without a password": {func(s *flotillav1.RedisSpec) { s.Auth.Mode = "Disabled" }, []string{""}, "72861d94ea2d00e5-3fa1d90dbc178817"},
		"two passwords":      {func(*flotillav1.RedisSpec) {}, []string{"v1", "v2"}, "c115440094566fcb.32e1f418c6c159f2-3fa1d90dbc178817"},
		"much of everything": {func(s *flotillav1.RedisSpec) {
			s.Image, s.Port, s.PodAntiAffinity, s.PriorityClassName, s.RuntimeClassName = "valkey/valkey:9.0", 7000, "Required", "high", "fast"
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("2")}
			s.Persistence = flotillav1.RedisPersistence{Mode: "RDB", AppendFsync: "always"}
			s.Config = map[string]flotillav1.ConfigValue{"hz": "20"}
			s.NodeSelector = map[string]string{"disk": "ssd"}
			s.Tolerations = []corev1.Toleration{{Key: "a", Operator: "Exists"}}
			s.TerminationGracePeriodSeconds = ptr.To[int64](90)
		}, []string{"v1"}, "353f5f8ca593444c-b57da09b0348c837"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(redisOf(tc.mutate))
			if got := podHash(&s, tc.passwords...); got != tc.want {
				t.Errorf("the hash of an unchanged spec is %s, want %s: every such Pod would be restarted", got, tc.want)
			}
		})
	}
}

func TestFollows_tells_which_passwords_can_be_rolled(t *testing.T) {
	base := spec(redisOf())
	for name, tc := range map[string]struct {
		from, to []string
		want     bool
	}{
		"the same":                           {[]string{"old"}, []string{"old"}, true},
		"another, without the previous one":  {[]string{"old"}, []string{"new"}, false},
		"another, with the previous one":     {[]string{"old"}, []string{"old", "new"}, true},
		"the previous one is dropped":        {[]string{"old", "new"}, []string{"new"}, true},
		"the rotation is taken back":         {[]string{"old", "new"}, []string{"old"}, true},
		"a previous one that never was":      {[]string{"old"}, []string{"wrong", "new"}, false},
		"another rotation before the end":    {[]string{"old", "new"}, []string{"new", "newer"}, true},
		"the previous one is dropped early":  {[]string{"old"}, []string{"new"}, false},
		"a third one in place of the second": {[]string{"old", "new"}, []string{"newer"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := follows(podHash(&base, tc.to...), podHash(&base, tc.from...)); got != tc.want {
				t.Errorf("Pods can be replaced one by one: %t, want %t", got, tc.want)
			}
		})
	}
	elsewhere := spec(redisOf(func(s *flotillav1.RedisSpec) { s.Port = 7000 }))
	if follows(podHash(&elsewhere, "old", "new"), podHash(&base, "old")) {
		t.Error("Pods on another port can be replaced one by one")
	}
}

func TestTopology_survives_a_round_trip(t *testing.T) {
	redis := redisOf(func(s *flotillav1.RedisSpec) { s.Replicas = ptr.To[int32](3) })
	s := spec(redis)
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
	want := []string{"client.sh", "live.sh", "ready.sh", "start.sh"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(scripts()))); diff != "" {
		t.Errorf("scripts differ (-want +got):\n%s", diff)
	}
}
