// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redisspec_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

func TestConfig(t *testing.T) {
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
			s := redisspec.Of(redisOf(tc.mutate))
			lines := strings.Split(redisspec.Config(&s), "\n")
			for _, want := range tc.want {
				if !slices.Contains(lines, want) {
					t.Errorf("no line %q in:\n%s", want, strings.Join(lines, "\n"))
				}
			}
		})
	}
}

func TestConfig_to_the_letter(t *testing.T) {
	s := redisspec.Of(redisOf(func(s *flotillav1.RedisSpec) {
		s.Config = map[string]flotillav1.ConfigValue{"timeout": "5", "hz": "20", "repl-diskless-sync-delay": "3"}
		s.Memory = &flotillav1.RedisMemory{MaxMemory: new(resource.MustParse("1Mi"))}
	}))
	// The directives of the operator come last, because the last one wins.
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
	if diff := cmp.Diff(want, redisspec.Config(&s)); diff != "" {
		t.Errorf("redis.conf differs (-want +got):\n%s", diff)
	}
}

func TestConfigProblem(t *testing.T) {
	for directive, value := range map[string]string{
		"requirepass": "x", "dir": "/tmp", "Save": "1", "save": "1 1", "include": "/etc/passwd", "maxmemory": "1", "user": "x", "aclfile": "x", "enable-module-command": "yes",
		"hz": "1\nrequirepass x", "timeout": `"`, "databases": "", "tcp-backlog": `\`, "hz\nport": "1", "replicaof": "a 1", "tls-port": "1",
	} {
		if redisspec.ConfigProblem(map[string]flotillav1.ConfigValue{directive: flotillav1.ConfigValue(value)}) == "" {
			t.Errorf("directive %q with value %q is accepted", directive, value)
		}
	}
}

// TestConfigProblem_accepts_what_the_schema_does keeps the two lists from contradicting each other.
func TestConfigProblem_accepts_what_the_schema_does(t *testing.T) {
	crd, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "flotilla.dev_redises.yaml"))
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
		if problem := redisspec.ConfigProblem(map[string]flotillav1.ConfigValue{directive: "1"}); problem != "" {
			t.Error(problem)
		}
	}
}
