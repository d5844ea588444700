// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// read reads what a command prints with -o json or yaml. A field that the type does not have fails.
func read[T any](t *testing.T, got result) T {
	t.Helper()
	var value T
	if err := yaml.UnmarshalStrict([]byte(got.out), &value); err != nil {
		t.Errorf("%v in\n%s", err, got.out)
	}
	return value
}

func TestOutput_of_another_format_is_refused_before_anything_is_read(t *testing.T) {
	w := newWorld(t)
	for _, command := range [][]string{{"held"}, {"expiries"}, {"doctor"}, {"tree", "redis/none"}, {"rollout", "status", "redis/none"}, {"rollout", "history", "redis/none"}, {"why", "redis/none", "-c", "eu-1"}, {"prune", "--dry-run"}, {"diff", "-f", "-"}} {
		w.fails([]string{`the output format "table" is not known`, "json, yaml"}, append(command, "-o", "table")...)
	}
	w.fails([]string{"--watch does not go with -o json"}, "rollout", "status", "redis/none", "--watch", "-o", "json")
}
