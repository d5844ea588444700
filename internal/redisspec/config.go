// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redisspec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

var (
	directivePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	valuePattern     = regexp.MustCompile(`^[ !#-&(-\[\]-~]{1,256}$`)
)

// ownedPrefixes are prefixes of directives that the operator sets or that go beyond tuning. The schema has an
// allow-list; this check also protects members with an older schema.
var ownedPrefixes = []string{
	"acl", "aof-load", "append", "bind", "cluster", "daemonize", "dbfilename", "dir", "enable-", "include", "loadmodule", "logfile", "masterauth",
	"masteruser", "min-replicas", "min-slaves", "oom", "pidfile", "port", "protected-mode", "rdb-del", "rename-command", "repl-diskless-load", "repl-ping", "replica",
	"requirepass", "save", "sentinel", "set-proc-title", "shutdown", "slave", "socket", "supervised", "syslog", "tls", "unixsocket", "user",
}

// ownedDirectives are owned by the operator too, but are prefixes of tunable directives.
var ownedDirectives = []string{"maxmemory", "maxmemory-policy"}

// ConfigProblem returns why the config of a spec cannot be rendered, or "".
func ConfigProblem(config map[string]flotillav1.ConfigValue) string {
	for _, directive := range slices.Sorted(maps.Keys(config)) {
		switch {
		case !directivePattern.MatchString(directive):
			return fmt.Sprintf("Config has a directive that is not lower-case letters, digits and hyphens: %.64q", directive)
		case operatorOwned(directive):
			return fmt.Sprintf("Config may not set directive %q", directive)
		case !valuePattern.MatchString(string(config[directive])):
			return fmt.Sprintf("Config directive %q has a value that is empty, too long, or has quotes, backslashes or control characters", directive)
		}
	}
	return ""
}

func operatorOwned(directive string) bool {
	return slices.Contains(ownedDirectives, directive) || slices.ContainsFunc(ownedPrefixes, func(prefix string) bool {
		return strings.HasPrefix(directive, prefix)
	})
}

// Config renders the configuration that is common to all Pods. The start script adds port, role and password. The
// directives of the operator come last, because the last one wins.
func Config(s *flotillav1.RedisSpec) string {
	var out strings.Builder
	// Defaults that the user may change. A replica that restarts alone need not wait five seconds for others. A replica
	// that connects to the address of a deleted primary gets no answer, not even a refusal: it times out and finds the new
	// Pod after this time instead of a minute.
	out.WriteString("repl-diskless-sync-delay 1\nrepl-timeout 15\n")
	if IsSentinel(s) {
		// The Pod that was not promoted continues from the backlog of the new primary instead of copying everything.
		out.WriteString("repl-backlog-size 64mb\n")
	}
	for _, directive := range slices.Sorted(maps.Keys(s.Config)) {
		fmt.Fprintf(&out, "%s %s\n", directive, s.Config[directive])
	}
	appendOnly, save := "no", `""`
	if s.Persistence.Mode == flotillav1.RedisPersistenceAOF || s.Persistence.Mode == flotillav1.RedisPersistenceAOFAndRDB {
		appendOnly = "yes"
	}
	if s.Persistence.Mode == flotillav1.RedisPersistenceRDB || s.Persistence.Mode == flotillav1.RedisPersistenceAOFAndRDB {
		save = "3600 1 300 100 60 10000"
	}
	for _, line := range []string{
		"bind * -::*",
		"daemonize no",
		"supervised no",
		`logfile ""`,
		"appendonly " + appendOnly,
		"appendfsync " + s.Persistence.AppendFsync,
		"save " + save,
		fmt.Sprintf("maxmemory %d", MaxMemory(s)),
		"maxmemory-policy " + s.Memory.MaxMemoryPolicy,
		// A replica keeps its old data until the new data has arrived completely.
		"repl-diskless-load disabled",
		"replica-read-only yes",
		"replica-serve-stale-data yes",
		// A replica that cannot write to its volume would otherwise exit at the next write of its primary.
		"replica-ignore-disk-write-errors yes",
		// An idle primary sends pings often enough for a short repl-timeout.
		"repl-ping-replica-period 5",
		// On SIGTERM the primary waits this long for its replicas to catch up.
		"shutdown-timeout 10",
	} {
		out.WriteString(line + "\n")
	}
	if IsSentinel(s) {
		// Without it a primary whose replicas do not follow would not end on SIGTERM.
		out.WriteString("shutdown-on-sigterm force\n")
	}
	if s.Replication.MinReplicasToWrite > 0 {
		fmt.Fprintf(&out, "min-replicas-to-write %d\nmin-replicas-max-lag %d\n", s.Replication.MinReplicasToWrite, s.Replication.MinReplicasMaxLagSeconds)
	}
	return out.String()
}

// IsSentinel reports whether a Redis fails over by itself.
func IsSentinel(s *flotillav1.RedisSpec) bool { return s.Mode == flotillav1.RedisModeSentinel }
