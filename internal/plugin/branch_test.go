// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// nodeServer serves two nodes with the role label of pool web, one of which is of the control plane.
func nodeServer(t *testing.T) *site.Site {
	t.Helper()
	answers := map[string]string{
		"/api":  `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`,
		"/api/v1": `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
			{"name": "nodes", "singularName": "node", "kind": "Node", "verbs": ["list"]}]}`,
		"/api/v1/nodes": `{"kind": "NodeList", "apiVersion": "v1", "items": [
			{"metadata": {"name": "worker", "labels": {"node-role.kubernetes.io/web": ""}}},
			{"metadata": {"name": "main", "labels": {"node-role.kubernetes.io/web": "", "node-role.kubernetes.io/control-plane": ""}}}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answers[r.URL.Path]))
	}))
	t.Cleanup(server.Close)
	s, err := site.New(&rest.Config{Host: server.URL}, "the member", "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAddNodes_are_those_that_the_manager_counts(t *testing.T) {
	member := nodeServer(t)
	pool := func(change func(*flotillav1.NodePoolSpec)) *flotillav1.NodePool {
		p := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		change(&p.Spec)
		return p
	}
	for name, test := range map[string]struct {
		pool *flotillav1.NodePool
		want string
	}{
		"by role":                  {pool(func(*flotillav1.NodePoolSpec) {}), "worker"},
		"with the control plane":   {pool(func(spec *flotillav1.NodePoolSpec) { spec.AllowControlPlane = true }), "main,worker"},
		"a selector without terms": {pool(func(spec *flotillav1.NodePoolSpec) { spec.NodeSelector = &flotillav1.NodeSelector{} }), ""},
	} {
		b := &branch{}
		if err := b.addNodes(t.Context(), member, test.pool); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, node := range b.below {
			names = append(names, node.name)
		}
		if got := strings.Join(names, ","); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
