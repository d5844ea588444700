// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"k8s.io/utils/clock"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// tryLink sends a request with a credential for a server, as it is changed, by the rules of a site.
func tryLink(t *testing.T, server *httptest.Server, policy registration.Policy, adjust func(*clientcmdapi.Cluster)) error {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	raw := clusterstest.Kubeconfig(t, server.URL, ca, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { adjust(c) })
	accepted, refused := registration.Parse(raw, &registration.Rules{Policy: policy})
	if refused != nil {
		t.Fatal(refused)
	}
	l, err := NewLink(accepted, clock.RealClock{}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Retire()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://member/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := l.RoundTrip(req)
	if err == nil {
		discard(resp.Body)
	}
	return err
}

func TestPolicy_checks_the_address_that_a_name_leads_to(t *testing.T) {
	var requests atomic.Int32
	server := clusterstest.TLSServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	byName := func(c *clientcmdapi.Cluster) {
		c.Server = strings.Replace(c.Server, "127.0.0.1", "localhost", 1)
		c.TLSServerName = "example.com"
	}
	for name, policy := range map[string]registration.Policy{
		"denied":      {DeniedCIDRs: clusterstest.CIDRs("127.0.0.0/8", "::1/128")},
		"not allowed": {AllowedCIDRs: clusterstest.CIDRs("192.0.2.0/24")},
	} {
		err := tryLink(t, server, policy, byName)
		if !errors.Is(err, verdict.ErrAddressDenied) || verdict.Explain(err).Reason != flotillav1.ReasonEndpointNotAllowed {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests arrived at a denied address", n)
	}
	if err := tryLink(t, server, registration.Policy{AllowedCIDRs: clusterstest.CIDRs("127.0.0.0/8", "::1/128")}, byName); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
}

func TestPolicy_verifies_by_the_roots_of_the_system(t *testing.T) {
	server := clusterstest.TLSServer(t, http.NotFoundHandler())
	err := tryLink(t, server, registration.Policy{AllowSystemRoots: true}, func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = nil })
	if err == nil || verdict.Explain(err).Reason != flotillav1.ReasonTLSFailed {
		t.Errorf("a server whose authority the system does not know: got %v", err)
	}
}

// tunnel is an HTTP proxy that counts what goes through it.
func tunnel(t *testing.T) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only tunnels", http.StatusMethodNotAllowed)
			return
		}
		upstream, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		tunnels.Add(1)
		client, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			_ = upstream.Close()
			return
		}
		_, _ = fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() }()
		go func() { _, _ = io.Copy(client, upstream); _ = client.Close() }()
	}))
	t.Cleanup(proxy.Close)
	return proxy, &tunnels
}

func TestPolicy_goes_through_the_proxy_of_the_registration_only(t *testing.T) {
	var requests atomic.Int32
	server := clusterstest.TLSServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && r.Header.Get("Authorization") == "Bearer "+clusterstest.SecretToken {
			requests.Add(1)
		}
	}))
	proxy, tunnels := tunnel(t)
	through := func(c *clientcmdapi.Cluster) { c.ProxyURL = proxy.URL }
	if err := tryLink(t, server, registration.Policy{AllowProxyURL: true}, through); err != nil {
		t.Fatal(err)
	}
	if tunnels.Load() != 1 || requests.Load() != 1 {
		t.Errorf("%d tunnels and %d requests, want one of each, over HTTP/2 and with the token inside", tunnels.Load(), requests.Load())
	}
	t.Setenv("HTTPS_PROXY", proxy.URL)
	if err := tryLink(t, server, registration.Policy{AllowProxyURL: true}, func(*clientcmdapi.Cluster) {}); err != nil || tunnels.Load() != 1 {
		t.Errorf("the environment of the manager must not choose a proxy: %d tunnels, %v", tunnels.Load(), err)
	}
	byName := func(c *clientcmdapi.Cluster) {
		c.Server = strings.Replace(c.Server, "127.0.0.1", "localhost", 1)
		c.ProxyURL = strings.Replace(proxy.URL, "127.0.0.1", "localhost", 1)
	}
	if err := tryLink(t, server, registration.Policy{AllowProxyURL: true, DeniedCIDRs: clusterstest.CIDRs("127.0.0.0/8", "::1/128")}, byName); err == nil || tunnels.Load() != 1 {
		t.Errorf("a proxy whose name leads to a denied address: %d tunnels, %v", tunnels.Load(), err)
	}
}
