// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestFit(t *testing.T) {
	const spec = `{"image":"redis:8","replicas":3,"storage":{"size":"1Gi"},"config":{"hz":"10"},"taints":[{"key":"a"},{"key":"b","effect":"NoExecute"}],"per":{"x":{"old":1,"new":2}}}`
	for name, tc := range map[string]struct {
		lacks    []MissingField
		want     string
		wantUsed []string
	}{
		"nothing is lacking":          {want: spec},
		"a field that is not set":     {lacks: []MissingField{{Path: "spec.tls"}, {Path: "spec.storage.className"}, {Path: "spec.tls.secret"}}, want: spec},
		"a field":                     {lacks: []MissingField{{Path: "spec.image"}}, want: spec, wantUsed: []string{"spec.image"}},
		"a nested field":              {lacks: []MissingField{{Path: "spec.storage.size", Default: `"2Gi"`}}, want: spec, wantUsed: []string{"spec.storage.size"}},
		"a field of some list items":  {lacks: []MissingField{{Path: "spec.taints[].effect"}}, want: spec, wantUsed: []string{"spec.taints[].effect"}},
		"a field below any key":       {lacks: []MissingField{{Path: "spec.per.*.new"}}, want: spec, wantUsed: []string{"spec.per.*.new"}},
		"a list where a map would be": {lacks: []MissingField{{Path: "spec.taints.effect"}, {Path: "spec.storage[].x"}, {Path: "spec.image.x"}}, want: spec},
		"a default goes unnoticed": {
			lacks: []MissingField{{Path: "spec.replicas", Default: "3"}, {Path: "spec.storage", Default: `{"size":"1Gi"}`}},
			want:  `{"image":"redis:8","config":{"hz":"10"},"taints":[{"key":"a"},{"key":"b","effect":"NoExecute"}],"per":{"x":{"old":1,"new":2}}}`,
		},
		"every use is looked at": {
			lacks:    []MissingField{{Path: "spec.taints[].key", Default: `"a"`}},
			want:     `{"image":"redis:8","replicas":3,"storage":{"size":"1Gi"},"config":{"hz":"10"},"taints":[{},{"key":"b","effect":"NoExecute"}],"per":{"x":{"old":1,"new":2}}}`,
			wantUsed: []string{"spec.taints[].key"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := Effective{Spec: parsed(t, spec), Hash: "hash"}
			fitting, used := whole.Fit(tc.lacks)
			if diff := cmp.Diff(Effective{Spec: parsed(t, tc.want), Hash: "hash"}, fitting); diff != "" {
				t.Errorf("what fits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantUsed, used); diff != "" {
				t.Errorf("what is used (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(parsed(t, spec), whole.Spec); diff != "" {
				t.Errorf("the whole spec has changed:\n%s", diff)
			}
		})
	}
}

func parsed(t *testing.T, document string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := utiljson.Unmarshal([]byte(document), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}
