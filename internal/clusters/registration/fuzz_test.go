// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"net/url"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// Bounds of one parse. The time is far above the 100 ms of a quiet machine, because the fuzzer and the race detector keep
// every processor busy. The memory counts everything that was allocated, not only what was in use at once.
const (
	parseTime   = 5 * time.Second
	parseMemory = 16 << 20
)

// allocated is how many bytes have been allocated so far. runtime.ReadMemStats would stop the world for it, twice for each
// input, which takes longer than most inputs do.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// forbiddenFields are fields that must be absent or empty wherever an accepted document has them.
var forbiddenFields = []string{
	"exec", "auth-provider", "tokenFile", "client-certificate", "client-key", "certificate-authority",
}

// forbiddenCurrent are those that must be in the cluster and the user in use.
var forbiddenCurrent = []string{
	"username", "password", "as", "as-uid", "as-groups", "as-user-extra", "insecure-skip-tls-verify", "proxy-url",
}

// forbiddenArgoCD are those of Argo CD's document.
var forbiddenArgoCD = []string{"execProviderConfig", "awsAuthConfig", "username", "password", "insecure", "proxyUrl"}

// isEmpty reports whether a field of a document says nothing.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}

// says lists the fields, under any spelling, that an object has with something in them. It walks the document as text and
// knows nothing of the types that the parser decodes into.
func says(object any, fields []string) []string {
	var found []string
	m, _ := object.(map[string]any)
	for key, value := range m {
		for _, field := range fields {
			if strings.EqualFold(key, field) && !isEmpty(value) {
				found = append(found, key)
			}
		}
	}
	return found
}

// entries returns the objects under clusters[].cluster or users[].user, and the one of a name.
func entries(document map[string]any, list, entry, name string) (all []any, named any) {
	items, _ := document[list].([]any)
	for _, item := range items {
		m, _ := item.(map[string]any)
		all = append(all, m[entry])
		if m["name"] == name && named == nil {
			named = m[entry]
		}
	}
	return all, named
}

// bounded runs a parser and fails when it takes too much.
func bounded(t *testing.T, parse func() (*Credential, *verdict.Refusal)) (*Credential, *verdict.Refusal) {
	t.Helper()
	before, started := allocated(), time.Now()
	accepted, refused := parse()
	took, used := time.Since(started), allocated()-before
	if took > parseTime {
		t.Errorf("parsing took %s", took)
	}
	if used > parseMemory {
		t.Errorf("parsing took %d bytes", used)
	}
	if (accepted == nil) == (refused == nil) {
		t.Fatalf("got %v and %v", accepted, refused)
	}
	if refused != nil && (refused.Reason == "" || refused.Message == "" || !refused.Final || len(refused.Message) > 300) {
		t.Errorf("refused with %+v", refused)
	}
	return accepted, refused
}

// expectSound checks what is in an accepted credential against the server it was read from.
func expectSound(t *testing.T, c *Credential, server string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil || !strings.EqualFold(u.Scheme, "https") || u.User != nil || u.Hostname() == "" {
		t.Errorf("accepted the server %q", server)
	}
	if address, err := netip.ParseAddr(c.server.Hostname()); err == nil && (address.Unmap().IsLinkLocalUnicast() || address.Unmap().IsUnspecified()) {
		t.Errorf("accepted the address %s", address)
	}
	config, err := c.TLSConfig()
	if err != nil || config.InsecureSkipVerify || config.RootCAs == nil {
		t.Errorf("accepted a connection that verifies nothing: %v", err)
	}
	if strings.ContainsAny(string(c.token.reveal()), "\r\n\x00") {
		t.Error("accepted a token that breaks a header")
	}
	if (c.kind == credentialToken) == (len(c.token.reveal()) == 0) {
		t.Errorf("accepted a credential of kind %s", c.kind)
	}
	if _, err := json.Marshal(c.Status()); err != nil {
		t.Errorf("the status cannot be written: %v", err)
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	ca, key := clusterstest.KeyPair(f, time.Now().Add(time.Hour))
	f.Add(clusterstest.Kubeconfig(f, "https://10.0.0.1:6443", ca, nil))
	f.Add(clusterstest.Kubeconfig(f, "https://[::1]/prefix", ca, func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		u.Token, u.ClientCertificateData, u.ClientKeyData = "", ca, key
	}))
	for _, adjust := range []func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "sh"}
		},
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		},
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = "/token" },
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Impersonate = "admin" },
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.Username, u.Password = "admin", "admin" },
		func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.InsecureSkipTLSVerify = true },
		func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://proxy" },
	} {
		f.Add(clusterstest.Kubeconfig(f, "https://10.0.0.1:6443", ca, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { adjust(c, u) }))
	}
	f.Add(bytes.Repeat([]byte("#"), MaxCredentialBytes+1))
	for _, content := range costly() {
		f.Add([]byte(content))
	}
	by := &Rules{HubEndpoints: HubEndpoints("https://hub.example.com", nil)}
	f.Fuzz(func(t *testing.T, content []byte) {
		accepted, refused := bounded(t, func() (*Credential, *verdict.Refusal) { return Parse(content, by) })
		if refused != nil {
			return
		}
		document := map[string]any{}
		if err := yaml.Unmarshal(content, &document); err != nil {
			t.Fatalf("accepted what is no document: %v", err)
		}
		current, _ := document["current-context"].(string)
		_, context := entries(document, "contexts", "context", current)
		c, _ := context.(map[string]any)
		clusterName, _ := c["cluster"].(string)
		userName, _ := c["user"].(string)
		clusters, cluster := entries(document, "clusters", "cluster", clusterName)
		users, user := entries(document, "users", "user", userName)
		for _, entry := range slices.Concat(clusters, users) {
			if found := says(entry, forbiddenFields); len(found) > 0 {
				t.Errorf("accepted %q", found)
			}
		}
		for _, entry := range []any{cluster, user} {
			if found := says(entry, forbiddenCurrent); len(found) > 0 {
				t.Errorf("accepted %q", found)
			}
		}
		m, _ := cluster.(map[string]any)
		server, _ := m["server"].(string)
		expectSound(t, accepted, server)
	})
}

func FuzzParseArgoCD(f *testing.F) {
	ca, key := clusterstest.KeyPair(f, time.Now().Add(time.Hour))
	seed := func(config map[string]any) {
		encoded, err := json.Marshal(config)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte("https://10.0.0.1:6443"), encoded)
	}
	seed(map[string]any{"bearerToken": "t", "tlsClientConfig": map[string]any{"caData": ca, "serverName": "api", "insecure": false}})
	seed(map[string]any{"tlsClientConfig": map[string]any{"caData": ca, "certData": ca, "keyData": key}})
	for _, field := range forbiddenArgoCD {
		seed(map[string]any{field: "x", "bearerToken": "t", "tlsClientConfig": map[string]any{"caData": ca}})
	}
	seed(map[string]any{"execProviderConfig": map[string]any{"command": "sh"}, "bearerToken": "t", "tlsClientConfig": map[string]any{"caData": ca}})
	seed(map[string]any{"bearerToken": "t", "tlsClientConfig": map[string]any{"caData": ca, "insecure": true}})
	for _, content := range costly() {
		f.Add([]byte("https://10.0.0.1:6443"), []byte(content))
	}
	by := &Rules{HubEndpoints: HubEndpoints("https://hub.example.com", nil)}
	f.Fuzz(func(t *testing.T, server, config []byte) {
		content := argoCDRegistration(t, string(server), string(config))
		accepted, refused := bounded(t, func() (*Credential, *verdict.Refusal) { return parseArgoCD(content, by) })
		if refused != nil {
			return
		}
		document := map[string]any{}
		if err := json.Unmarshal(config, &document); err != nil {
			t.Fatalf("accepted what is no document: %v", err)
		}
		for _, entry := range []any{document, document["tlsClientConfig"]} {
			if found := says(entry, forbiddenArgoCD); len(found) > 0 {
				t.Errorf("accepted %q", found)
			}
		}
		expectSound(t, accepted, string(server))
	})
}
