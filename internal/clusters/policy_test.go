// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"k8s.io/utils/clock"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// cidrs parses prefixes.
func cidrs(list ...string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, cidr := range list {
		prefixes = append(prefixes, netip.MustParsePrefix(cidr))
	}
	return prefixes
}

func TestPolicy_decides_where_a_server_may_be(t *testing.T) {
	ca, _ := keyPair(t, time.Now().Add(time.Hour))
	for name, tc := range map[string]struct {
		policy  Policy
		server  string
		refused bool
	}{
		"anywhere by default":             {server: "https://10.1.2.3"},
		"loopback by default":             {server: "https://127.0.0.1:6443"},
		"in an allowed network":           {policy: Policy{AllowedCIDRs: cidrs("192.0.2.0/24", "10.0.0.0/8")}, server: "https://10.1.2.3"},
		"in no allowed network":           {policy: Policy{AllowedCIDRs: cidrs("192.0.2.0/24")}, server: "https://10.1.2.3", refused: true},
		"a name, whose address is later":  {policy: Policy{AllowedCIDRs: cidrs("192.0.2.0/24")}, server: "https://api.example.com"},
		"in a denied network":             {policy: Policy{DeniedCIDRs: cidrs("10.1.0.0/16")}, server: "https://10.1.2.3", refused: true},
		"mapped into IPv6":                {policy: Policy{DeniedCIDRs: cidrs("10.1.0.0/16")}, server: "https://[::ffff:10.1.2.3]", refused: true},
		"denied among the allowed":        {policy: Policy{AllowedCIDRs: cidrs("10.0.0.0/8"), DeniedCIDRs: cidrs("10.1.0.0/16")}, server: "https://10.1.2.3", refused: true},
		"link-local in all of IPv4":       {policy: Policy{AllowedCIDRs: cidrs("0.0.0.0/0")}, server: "https://169.254.7.7", refused: true},
		"link-local in its own network":   {policy: Policy{AllowedCIDRs: cidrs("169.254.7.0/24")}, server: "https://169.254.7.7"},
		"link-local of another network":   {policy: Policy{AllowedCIDRs: cidrs("169.254.7.0/24")}, server: "https://169.254.8.7", refused: true},
		"metadata in its own network":     {policy: Policy{AllowedCIDRs: cidrs("169.254.0.0/16")}, server: "https://169.254.169.254", refused: true},
		"metadata of IPv6":                {policy: Policy{AllowedCIDRs: cidrs("fd00:ec2::/32")}, server: "https://[fd00:ec2::254]", refused: true},
		"metadata by an allowed name":     {policy: Policy{AllowedHosts: []string{"metadata.google.internal"}}, server: "https://metadata.google.internal", refused: true},
		"an allowed name":                 {policy: Policy{AllowedHosts: []string{"api.example.com"}}, server: "https://API.example.com.:6443"},
		"a name below an allowed one":     {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://a.b.example.com"},
		"the name above a wildcard":       {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://example.com", refused: true},
		"a name that only ends alike":     {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://badexample.com", refused: true},
		"an address instead of a name":    {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://10.1.2.3", refused: true},
		"an allowed address":              {policy: Policy{AllowedHosts: []string{"10.1.2.3"}}, server: "https://10.1.2.3"},
		"an allowed host that is denied":  {policy: Policy{AllowedHosts: []string{"10.1.2.3"}, DeniedCIDRs: cidrs("10.0.0.0/8")}, server: "https://10.1.2.3", refused: true},
		"the address of a container task": {server: "https://169.254.170.2", policy: Policy{AllowedCIDRs: cidrs("169.254.170.0/24")}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, refused := parseCredential(kubeconfigFor(t, tc.server, ca, nil), &rules{policy: tc.policy})
			switch {
			case tc.refused && (refused == nil || refused.reason != flotillav1.ReasonEndpointNotAllowed):
				t.Errorf("got %v, want EndpointNotAllowed", refused)
			case !tc.refused && refused != nil:
				t.Error(refused)
			}
		})
	}
}

func TestPolicy_allows_no_more_than_it_says(t *testing.T) {
	ca, _ := keyPair(t, time.Now().Add(time.Hour))
	loose := Policy{AllowSystemRoots: true, AllowProxyURL: true, AllowedCIDRs: cidrs("0.0.0.0/0", "::/0", "169.254.0.0/16")}
	type (
		cluster = clientcmdapi.Cluster
		user    = clientcmdapi.AuthInfo
	)
	for name, tc := range map[string]struct {
		policy Policy
		adjust func(*cluster, *user)
		want   string
	}{
		"no authority by default":      {adjust: func(c *cluster, _ *user) { c.CertificateAuthorityData = nil }, want: flotillav1.ReasonCAMissing},
		"no authority":                 {policy: Policy{AllowSystemRoots: true}, adjust: func(c *cluster, _ *user) { c.CertificateAuthorityData = nil }},
		"an authority of no use":       {policy: loose, adjust: func(c *cluster, _ *user) { c.CertificateAuthorityData = []byte("x") }, want: flotillav1.ReasonCAMissing},
		"a proxy by default":           {adjust: func(c *cluster, _ *user) { c.ProxyURL = "http://10.0.0.2:3128" }, want: flotillav1.ReasonProxyNotAllowed},
		"a proxy":                      {policy: Policy{AllowProxyURL: true}, adjust: func(c *cluster, _ *user) { c.ProxyURL = "http://10.0.0.2:3128" }},
		"a proxy of another sort":      {policy: loose, adjust: func(c *cluster, _ *user) { c.ProxyURL = "socks5://proxy:1080" }},
		"a proxy over TLS":             {policy: loose, adjust: func(c *cluster, _ *user) { c.ProxyURL = "https://proxy" }, want: flotillav1.ReasonProxyNotAllowed},
		"a proxy that is a file":       {policy: loose, adjust: func(c *cluster, _ *user) { c.ProxyURL = "file:///proxy" }, want: flotillav1.ReasonProxyNotAllowed},
		"a proxy with a password":      {policy: loose, adjust: func(c *cluster, _ *user) { c.ProxyURL = "http://a:b@proxy" }, want: flotillav1.ReasonBasicAuthNotAllowed},
		"a metadata service as proxy":  {policy: loose, adjust: func(c *cluster, _ *user) { c.ProxyURL = "http://169.254.169.254" }, want: flotillav1.ReasonEndpointNotAllowed},
		"a metadata name as proxy":     {policy: loose, adjust: func(c *cluster, _ *user) { c.ProxyURL = "http://metadata" }, want: flotillav1.ReasonEndpointNotAllowed},
		"a proxy in a denied network":  {policy: Policy{AllowProxyURL: true, DeniedCIDRs: cidrs("10.0.0.2/32")}, adjust: func(c *cluster, _ *user) { c.ProxyURL = "http://10.0.0.2" }, want: flotillav1.ReasonEndpointNotAllowed},
		"a program all the same":       {policy: loose, adjust: func(_ *cluster, u *user) { u.Exec = &clientcmdapi.ExecConfig{Command: "sh"} }, want: flotillav1.ReasonExecNotAllowed},
		"a file all the same":          {policy: loose, adjust: func(_ *cluster, u *user) { u.TokenFile = "/token" }, want: flotillav1.ReasonFileReferenceNotAllowed},
		"no verification all the same": {policy: loose, adjust: func(c *cluster, _ *user) { c.InsecureSkipTLSVerify = true }, want: flotillav1.ReasonInsecureTLSNotAllowed},
		"plain HTTP all the same":      {policy: loose, adjust: func(c *cluster, _ *user) { c.Server = "http://10.0.0.1" }, want: flotillav1.ReasonHTTPNotAllowed},
		"a password all the same":      {policy: loose, adjust: func(_ *cluster, u *user) { u.Password = "p" }, want: flotillav1.ReasonBasicAuthNotAllowed},
		"impersonation all the same":   {policy: loose, adjust: func(_ *cluster, u *user) { u.Impersonate = "admin" }, want: flotillav1.ReasonImpersonationNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			raw := kubeconfigFor(t, "https://10.0.0.1:6443", ca, func(_ *clientcmdapi.Config, c *cluster, u *user) { tc.adjust(c, u) })
			accepted, refused := parseCredential(raw, &rules{policy: tc.policy})
			switch {
			case tc.want != "" && (refused == nil || refused.reason != tc.want):
				t.Errorf("got %v, want %s", refused, tc.want)
			case tc.want == "" && refused != nil:
				t.Error(refused)
			case tc.want == "":
				if config, err := accepted.tlsConfig(); err != nil || config.InsecureSkipVerify {
					t.Errorf("the server is not verified: %+v, %v", config, err)
				}
			}
		})
	}
}

// tryLink sends a request with a credential for a server, as it is changed, by the rules of a site.
func tryLink(t *testing.T, server *httptest.Server, policy Policy, adjust func(*clientcmdapi.Cluster)) error {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	raw := kubeconfigFor(t, server.URL, ca, func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { adjust(c) })
	accepted, refused := parseCredential(raw, &rules{policy: policy})
	if refused != nil {
		t.Fatal(refused)
	}
	l, err := newLink(accepted, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.retire()
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
	server := tlsServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	byName := func(c *clientcmdapi.Cluster) {
		c.Server = strings.Replace(c.Server, "127.0.0.1", "localhost", 1)
		c.TLSServerName = "example.com"
	}
	for name, policy := range map[string]Policy{
		"denied":      {DeniedCIDRs: cidrs("127.0.0.0/8", "::1/128")},
		"not allowed": {AllowedCIDRs: cidrs("192.0.2.0/24")},
	} {
		err := tryLink(t, server, policy, byName)
		if !errors.Is(err, errAddressDenied) || explain(err).reason != flotillav1.ReasonEndpointNotAllowed {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests arrived at a denied address", n)
	}
	if err := tryLink(t, server, Policy{AllowedCIDRs: cidrs("127.0.0.0/8", "::1/128")}, byName); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
}

func TestPolicy_verifies_by_the_roots_of_the_system(t *testing.T) {
	server := tlsServer(t, http.NotFoundHandler())
	err := tryLink(t, server, Policy{AllowSystemRoots: true}, func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = nil })
	if err == nil || explain(err).reason != flotillav1.ReasonTLSFailed {
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
	server := tlsServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && r.Header.Get("Authorization") == "Bearer "+secretToken {
			requests.Add(1)
		}
	}))
	proxy, tunnels := tunnel(t)
	through := func(c *clientcmdapi.Cluster) { c.ProxyURL = proxy.URL }
	if err := tryLink(t, server, Policy{AllowProxyURL: true}, through); err != nil {
		t.Fatal(err)
	}
	if tunnels.Load() != 1 || requests.Load() != 1 {
		t.Errorf("%d tunnels and %d requests, want one of each, over HTTP/2 and with the token inside", tunnels.Load(), requests.Load())
	}
	t.Setenv("HTTPS_PROXY", proxy.URL)
	if err := tryLink(t, server, Policy{AllowProxyURL: true}, func(*clientcmdapi.Cluster) {}); err != nil || tunnels.Load() != 1 {
		t.Errorf("the environment of the manager must not choose a proxy: %d tunnels, %v", tunnels.Load(), err)
	}
	byName := func(c *clientcmdapi.Cluster) {
		c.Server = strings.Replace(c.Server, "127.0.0.1", "localhost", 1)
		c.ProxyURL = strings.Replace(proxy.URL, "127.0.0.1", "localhost", 1)
	}
	if err := tryLink(t, server, Policy{AllowProxyURL: true, DeniedCIDRs: cidrs("127.0.0.0/8", "::1/128")}, byName); err == nil || tunnels.Load() != 1 {
		t.Errorf("a proxy whose name leads to a denied address: %d tunnels, %v", tunnels.Load(), err)
	}
}
