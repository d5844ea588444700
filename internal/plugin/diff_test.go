// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// changed is what is tried: for all clusters a new image, and one more Pod except where an override says otherwise.
const changed = `apiVersion: flotilla.dev/v1alpha1
kind: Redis
metadata: {name: cache, namespace: shop}
spec:
  replicas: 3
  image: redis:8.4
  placement:
    clusters: [eu-1, us-1]
    overrides:
    - clusters: [us-1]
      patch: {replicas: 1, image: "redis:8.2"}
---
apiVersion: flotilla.dev/v1alpha1
kind: NodePool
metadata: {name: web}
spec:
  nodeSelector: {matchLabels: {pool: web}}
  labels: {example.com/tier: back}
  taints: [{key: example.com/web, effect: NoExecute}]
  placement: {clusters: [eu-1, us-1]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
`

// file writes a file for -f.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *story) diff(t *testing.T) {
	before := specs(t)
	show(t, "diff", "diff -f fleet.yaml", s.must("diff", "-f", file(t, changed)))
	tried := read[itemList[trialItem]](t, s.must("diff", "-f", file(t, changed), "-o", "json")).Items
	if len(tried) != 6 || tried[0].Cluster != "" || tried[0].Object != "redis/shop/cache" || tried[1].Cluster != "eu-1" || tried[1].Effect != "restarts Pods one by one" || len(tried[1].Changes) == 0 {
		t.Errorf("a script reads %+v", tried)
	}
	if got := s.must("diff", "-f", file(t, changed), "-o", "markdown"); !strings.HasPrefix(got.out, "| OBJECT | CLUSTER | RESULT | DETAIL |\n|---|---|---|---|\n| `redis/shop/cache` | `(hub)` | changed | `") {
		t.Errorf("in a pull request it says\n%s", got.out)
	}
	s.answers = []string{strings.ReplaceAll(changed, "replicas: 3", "replicas: 2")}
	if got := s.must("diff", "-f", "-"); !strings.Contains(got.out, "image") || strings.Contains(got.out, "replicas 2 → 3") {
		t.Errorf("from standard input it says\n%s", got.out)
	}
	got := s.fails([]string{"1 of the trials were refused"}, "diff", "-f", file(t, strings.ReplaceAll(changed, "replicas: 3", "replicas: -3")))
	if !strings.Contains(got.out, "refused") || !strings.Contains(got.out, "spec.replicas") {
		t.Errorf("what the hub refuses shows as\n%s", got.out)
	}
	got = s.fails([]string{"1 of the trials were refused"}, "diff", "-f", file(t, strings.ReplaceAll(changed, "clusters: [eu-1, us-1]\n", "clusters: [eu-1, eu-9]\n")))
	if !strings.Contains(got.out, flotillav1.ReasonNotRegistered) || !strings.Contains(got.out, "not chosen") {
		t.Errorf("another placement shows as\n%s", got.out)
	}
	// What is left to the member stays there as it is, also where the schema has another default.
	left := strings.ReplaceAll(changed, `patch: {replicas: 1, image: "redis:8.2"}`, "leaveToMember: [replicas, image]")
	if got := s.must("diff", "-f", file(t, left)); !regexp.MustCompile(`(?m)^redis/shop/cache +us-1 +unchanged`).MatchString(got.out) {
		t.Errorf("leaving fields to the member shows as\n%s", got.out)
	}
	wrong := strings.ReplaceAll(changed, `patch: {replicas: 1, image: "redis:8.2"}`, "leaveToMember: [imgae]")
	got = s.fails([]string{"of the trials were refused"}, "diff", "-f", file(t, wrong))
	if !strings.Contains(got.out, `did you mean "image"?`) {
		t.Errorf("an invalid override shows as\n%s", got.out)
	}
	s.fails([]string{"the file is missing"}, "diff")
	s.fails([]string{"reading the file"}, "diff", "-f", "missing.yaml")
	s.fails([]string{"it is not YAML or JSON"}, "diff", "-f", file(t, "{"))
	s.fails([]string{"no object that is placed"}, "diff", "-f", file(t, "kind: ConfigMap"))
	if diff := cmp.Diff(before, specs(t)); diff != "" {
		t.Errorf("diff has written (-before +after):\n%s", diff)
	}
}

// specs are the specs of Redis cache and NodePool web everywhere.
func specs(t *testing.T) map[string]any {
	t.Helper()
	found := map[string]any{}
	for name, cluster := range map[string]*testenv.Cluster{"hub": hubServer, "eu-1": eu1, "us-1": us1} {
		redis, pool := &flotillav1.Redis{}, &flotillav1.NodePool{}
		if err := cluster.Client.Get(context.Background(), client.ObjectKey{Namespace: "shop", Name: "cache"}, redis); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Client.Get(context.Background(), client.ObjectKey{Name: "web"}, pool); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		found[name+" redis"], found[name+" nodepool"] = redis.Spec, pool.Spec
	}
	return found
}

// olderSchema takes a field from the schema of Redis in us-1 and returns what puts it back.
func olderSchema(t *testing.T) func() {
	t.Helper()
	ctx := context.Background()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := us1.Client.Get(ctx, client.ObjectKey{Name: fleet.Redis.CRD}, definition); err != nil {
		t.Fatal(err)
	}
	whole := definition.DeepCopy()
	for i := range definition.Spec.Versions {
		spec := definition.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
		delete(spec.Properties, "priorityClassName")
		definition.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	}
	if err := us1.Client.Update(ctx, definition); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		whole.ResourceVersion = ""
		if err := us1.Client.Patch(ctx, whole, client.Merge); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *story) diffOlderSchema(t *testing.T) {
	restore := olderSchema(t)
	defer restore()
	content := strings.ReplaceAll(changed, "replicas: 3", "priorityClassName: high")
	got := s.fails([]string{"1 of the trials were refused"}, "diff", "-f", file(t, content))
	if !strings.Contains(got.out, "the CRD there lacks spec.priorityClassName; run kubectl flotilla upgrade-member ") {
		t.Errorf("it says\n%s", got.out)
	}
	if sick := s.run("doctor", "us-1"); !strings.Contains(sick.out, "lacks spec.priorityClassName") {
		t.Errorf("doctor says\n%s", sick.out)
	}
}
