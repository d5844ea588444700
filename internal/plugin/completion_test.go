// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"
)

// complete asks for completions as a shell does.
func (s *story) complete(t *testing.T) {
	show(t, "completion", "__complete tree -n shop ''", result{shown: s.must("__complete", "tree", "-n", "shop", "").out})
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"unregister", ""}, []string{"eu-1", "us-1"}},
		{[]string{"register", "new", "--member-context", ""}, []string{"eu-1-admin", "us-1-admin", "hub"}},
		{[]string{"why", "nodepool/web", "-c", ""}, []string{"eu-1", "us-1"}},
		{[]string{"status", "-o", ""}, []string{"json", "yaml", "wide"}},
		{[]string{"rbac", "--kinds", ""}, []string{"Redis", "NodePool"}},
		{[]string{"r"}, []string{"register", "rotate", "rbac"}},
	} {
		got := s.must(append([]string{"__complete"}, test.args...)...)
		for _, want := range test.want {
			if !strings.Contains("\n"+got.out, "\n"+want) {
				t.Errorf("%s completes to\n%s", strings.Join(test.args, " "), got.out)
			}
		}
	}
	if got := s.must("completion", "bash"); !strings.Contains(got.out, "__complete") {
		t.Errorf("the script for bash is\n%s", got.out)
	}
}
