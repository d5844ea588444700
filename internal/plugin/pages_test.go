// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// pagedServer serves two pages of Redises. Only the second on the second page lacks the finalizer of placement.
func pagedServer(t *testing.T) *site.Site {
	t.Helper()
	version := flotillav1.GroupVersion.String()
	resources := fmt.Sprintf(`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": %q, "resources": [
		{"name": "redises", "singularName": "redis", "namespaced": true, "kind": "Redis", "verbs": ["list"]},
		{"name": "nodepools", "singularName": "nodepool", "kind": "NodePool", "verbs": ["list"]}]}`, version)
	groups := fmt.Sprintf(`{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "flotilla.dev",
		"versions": [{"groupVersion": %[1]q, "version": "v1alpha1"}], "preferredVersion": {"groupVersion": %[1]q, "version": "v1alpha1"}}]}`, version)
	redis := func(name, finalizers string) string {
		return fmt.Sprintf(`{"metadata": {"namespace": "shop", "name": %q, "finalizers": [%s]}}`, name, finalizers)
	}
	page := func(kind, next string, items ...string) string {
		return fmt.Sprintf(`{"kind": "%sList", "apiVersion": %q, "metadata": {"continue": %q}, "items": [%s]}`, kind, version, next, strings.Join(items, ","))
	}
	held := fmt.Sprintf("%q", flotillav1.FinalizerPlacement)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers := map[string]string{
			"/apis": groups, "/apis/" + version: resources,
			"/apis/" + version + "/nodepools": page("NodePool", ""),
			"/apis/" + version + "/redises":   page("Redis", "next", redis("a", held), redis("b", held)),
		}
		if r.URL.Query().Get("continue") == "next" {
			answers["/apis/"+version+"/redises"] = page("Redis", "", redis("c", held), `{"metadata": {"namespace": "shop", "name": "d"}}`)
		}
		answer, found := answers[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	s, err := site.New(&rest.Config{Host: server.URL}, "the hub", "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWithFinalizer_reads_all_pages(t *testing.T) {
	found, err := withFinalizer(t.Context(), pagedServer(t), flotillav1.FinalizerPlacement)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(found))
	for _, object := range found {
		names = append(names, object.GetName())
	}
	if got := strings.Join(names, ","); got != "a,b,c" {
		t.Errorf("found are %s", got)
	}
}
