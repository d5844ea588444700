// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// defaultMaxMemoryPercent leaves room for replication buffers and for the copy-on-write of a fork.
const defaultMaxMemoryPercent = 75

var (
	defaultStorageSize = resource.MustParse("1Gi")
	directivePattern   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	valuePattern       = regexp.MustCompile(`^[ !#-&(-\[\]-~]{1,256}$`)
)

// ownedPrefixes begin directives that the operator writes, or that reach beyond tuning. The schema has an allow-list;
// this holds where a member has an older one.
var ownedPrefixes = []string{
	"acl", "aof-load", "append", "bind", "cluster", "daemonize", "dbfilename", "dir", "enable-", "include", "loadmodule", "logfile", "masterauth",
	"masteruser", "min-replicas", "min-slaves", "oom", "pidfile", "port", "protected-mode", "rdb-del", "rename-command", "repl-diskless-load", "repl-ping", "replica",
	"requirepass", "save", "sentinel", "set-proc-title", "shutdown", "slave", "socket", "supervised", "syslog", "tls", "unixsocket", "user",
}

// ownedDirectives are operator-owned too, but are the beginning of tunables.
var ownedDirectives = []string{"maxmemory", "maxmemory-policy"}

// configProblem says why the config of a spec cannot be rendered; empty when it can.
func configProblem(config map[string]flotillav1.ConfigValue) string {
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

// renderConfig renders what the servers of all Pods have in common. The start script adds port, role and password. The
// operator's directives come last, because the last one wins.
func renderConfig(s *flotillav1.RedisSpec) string {
	var out strings.Builder
	// Defaults that the user may change. A replica that restarts alone need not wait five seconds for others. One that was
	// led to the address of a primary's Pod that has just gone gets no answer from there, not even a refusal: it gives up
	// and finds the new Pod after this time instead of a minute.
	out.WriteString("repl-diskless-sync-delay 1\nrepl-timeout 15\n")
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
		fmt.Sprintf("maxmemory %d", maxMemory(s)),
		"maxmemory-policy " + s.Memory.MaxMemoryPolicy,
		// A replica keeps its old data until the whole of the new has arrived.
		"repl-diskless-load disabled",
		"replica-read-only yes",
		"replica-serve-stale-data yes",
		// A replica that cannot write to its volume would end itself at the next write of its primary.
		"replica-ignore-disk-write-errors yes",
		// A primary that has nothing to say says so often enough for a short repl-timeout.
		"repl-ping-replica-period 5",
		// On SIGTERM the primary waits this long for its replicas to catch up.
		"shutdown-timeout 10",
	} {
		out.WriteString(line + "\n")
	}
	if s.Replication.MinReplicasToWrite > 0 {
		fmt.Fprintf(&out, "min-replicas-to-write %d\nmin-replicas-max-lag %d\n", s.Replication.MinReplicasToWrite, s.Replication.MinReplicasMaxLagSeconds)
	}
	return out.String()
}

// maxMemory returns the bound of the data set in bytes, 0 when there is none.
func maxMemory(s *flotillav1.RedisSpec) int64 {
	if s.Memory.MaxMemory != nil {
		return max(s.Memory.MaxMemory.Value(), 0)
	}
	percent := int64(defaultMaxMemoryPercent)
	if s.Memory.MaxMemoryPercent != nil {
		percent = int64(*s.Memory.MaxMemoryPercent)
	}
	// Divided first: the product of a large limit would overflow.
	limit := s.Resources.Limits.Memory().Value()
	return limit/100*percent + limit%100*percent/100
}
