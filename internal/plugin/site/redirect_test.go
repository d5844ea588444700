// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

const secretToken = "SECRET-TOKEN"

// elsewhere is a server that must not be asked for anything. It returns its URL.
func elsewhere(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("the plugin asked %s for %s %s and sent %q", req.Host, req.Method, req.URL, req.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// discovered answers a request for what an API server serves, and reports whether it was one.
func discovered(w http.ResponseWriter, req *http.Request) bool {
	var answer any
	switch req.URL.Path {
	case "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "/apis":
		answer = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	case "/api/v1":
		answer = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{Name: "secrets", Namespaced: true, Kind: "Secret", Verbs: metav1.Verbs{"get", "create"}},
				{Name: "namespaces", Kind: "Namespace", Verbs: metav1.Verbs{"get"}},
			},
		}
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
	return true
}

// redirecting is an API server that redirects every request but those for what it serves. It returns its URL and its certificate authority.
func redirecting(t *testing.T, status int, to string) (server string, authority []byte) {
	t.Helper()
	member := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if got := req.Header.Get("Authorization"); got != "Bearer "+secretToken {
			t.Errorf("the member got Authorization %q", got)
		}
		if !discovered(w, req) {
			http.Redirect(w, req, to+"/stolen", status)
		}
	}))
	t.Cleanup(member.Close)
	return member.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: member.Certificate().Raw})
}

// redirects are the status codes that an HTTP client follows; the last two with the body.
var redirects = []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}

// wantNoRedirect uses a site whose server redirects.
func wantNoRedirect(t *testing.T, s *site.Site) {
	t.Helper()
	for doing, act := range map[string]func(context.Context) error{
		"asking for its version": func(ctx context.Context) error { _, err := s.Greet(ctx); return err },
		"reading its identity":   func(ctx context.Context) error { _, err := s.Identity(ctx); return err },
		"creating a Secret": func(ctx context.Context) error {
			return s.Explain("creating a Secret", s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}))
		},
	} {
		err := act(t.Context())
		if err == nil || !strings.Contains(err.Error(), "redirects are not followed") || !strings.Contains(err.Error(), "what answers there is not the API server itself") || strings.Contains(err.Error(), "stolen") {
			t.Errorf("%s: %v", doing, err)
		}
	}
}

func TestNew_follows_no_redirect(t *testing.T) {
	to := elsewhere(t)
	for _, status := range redirects {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server, authority := redirecting(t, status, to)
			s, err := site.New(&rest.Config{Host: server, BearerToken: secretToken, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}, "the member", "choose another")
			if err != nil {
				t.Fatal(err)
			}
			wantNoRedirect(t, s)
		})
	}
}

func TestByRegistration_follows_no_redirect(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	to := elsewhere(t)
	for _, status := range redirects {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server, authority := redirecting(t, status, to)
			ways, member := registered(t, server, authority)
			s, err := ways.ByRegistration(t.Context(), member)
			if err == nil || !strings.Contains(err.Error(), "redirects are not followed") {
				t.Fatalf("it returns %v and %v", s, err)
			}
		})
	}
}

// registered returns the ways of a hub that has the registration of a member with this server.
func registered(t *testing.T, server string, authority []byte) (*site.Ways, *flotillav1.MemberCluster) {
	t.Helper()
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": []any{map[string]any{"name": "a", "cluster": map[string]any{"server": server, "certificate-authority-data": authority}}},
		"users":    []any{map[string]any{"name": "a", "user": map[string]any{"token": secretToken}}},
		"contexts": []any{map[string]any{"name": "a", "context": map[string]any{"cluster": "a", "user": "a"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "eu-1", Labels: map[string]string{flotillav1.LabelCluster: "true"}},
		Data:       map[string][]byte{flotillav1.KeyKubeconfig: kubeconfig},
	}
	hub := newSite(t, func(w http.ResponseWriter, req *http.Request) {
		if !discovered(w, req) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(secret)
		}
	})
	ways, err := site.NewAccess(&cobra.Command{}).WaysInto(t.Context(), hub)
	if err != nil {
		t.Fatal(err)
	}
	member := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}}
	member.Spec.SecretRef.Namespace, member.Spec.SecretRef.Name = "clusters", "eu-1"
	return ways, member
}
