// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

func TestPolicy_decides_where_a_server_may_be(t *testing.T) {
	ca, _ := clusterstest.KeyPair(t, time.Now().Add(time.Hour))
	for name, tc := range map[string]struct {
		policy  Policy
		server  string
		refused bool
	}{
		"anywhere by default":             {server: "https://10.1.2.3"},
		"loopback by default":             {server: "https://127.0.0.1:6443"},
		"in an allowed network":           {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("192.0.2.0/24", "10.0.0.0/8")}, server: "https://10.1.2.3"},
		"in no allowed network":           {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("192.0.2.0/24")}, server: "https://10.1.2.3", refused: true},
		"a name, whose address is later":  {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("192.0.2.0/24")}, server: "https://api.example.com"},
		"in a denied network":             {policy: Policy{DeniedCIDRs: clusterstest.CIDRs("10.1.0.0/16")}, server: "https://10.1.2.3", refused: true},
		"mapped into IPv6":                {policy: Policy{DeniedCIDRs: clusterstest.CIDRs("10.1.0.0/16")}, server: "https://[::ffff:10.1.2.3]", refused: true},
		"denied among the allowed":        {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("10.0.0.0/8"), DeniedCIDRs: clusterstest.CIDRs("10.1.0.0/16")}, server: "https://10.1.2.3", refused: true},
		"link-local in all of IPv4":       {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("0.0.0.0/0")}, server: "https://169.254.7.7", refused: true},
		"link-local in its own network":   {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("169.254.7.0/24")}, server: "https://169.254.7.7"},
		"link-local of another network":   {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("169.254.7.0/24")}, server: "https://169.254.8.7", refused: true},
		"metadata in its own network":     {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("169.254.0.0/16")}, server: "https://169.254.169.254", refused: true},
		"metadata of IPv6":                {policy: Policy{AllowedCIDRs: clusterstest.CIDRs("fd00:ec2::/32")}, server: "https://[fd00:ec2::254]", refused: true},
		"metadata by an allowed name":     {policy: Policy{AllowedHosts: []string{"metadata.google.internal"}}, server: "https://metadata.google.internal", refused: true},
		"an allowed name":                 {policy: Policy{AllowedHosts: []string{"api.example.com"}}, server: "https://API.example.com.:6443"},
		"a name below an allowed one":     {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://a.b.example.com"},
		"the name above a wildcard":       {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://example.com", refused: true},
		"a name that only ends alike":     {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://badexample.com", refused: true},
		"an address instead of a name":    {policy: Policy{AllowedHosts: []string{"*.example.com"}}, server: "https://10.1.2.3", refused: true},
		"an allowed address":              {policy: Policy{AllowedHosts: []string{"10.1.2.3"}}, server: "https://10.1.2.3"},
		"an allowed host that is denied":  {policy: Policy{AllowedHosts: []string{"10.1.2.3"}, DeniedCIDRs: clusterstest.CIDRs("10.0.0.0/8")}, server: "https://10.1.2.3", refused: true},
		"the address of a container task": {server: "https://169.254.170.2", policy: Policy{AllowedCIDRs: clusterstest.CIDRs("169.254.170.0/24")}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, refused := Parse(clusterstest.Kubeconfig(t, tc.server, ca, nil), &Rules{Policy: tc.policy})
			switch {
			case tc.refused && (refused == nil || refused.Reason != flotillav1.ReasonEndpointNotAllowed):
				t.Errorf("got %v, want EndpointNotAllowed", refused)
			case !tc.refused && refused != nil:
				t.Error(refused)
			}
		})
	}
}

func TestPolicy_allows_no_more_than_it_says(t *testing.T) {
	ca, _ := clusterstest.KeyPair(t, time.Now().Add(time.Hour))
	loose := Policy{AllowSystemRoots: true, AllowProxyURL: true, AllowedCIDRs: clusterstest.CIDRs("0.0.0.0/0", "::/0", "169.254.0.0/16")}
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
		"a proxy in a denied network":  {policy: Policy{AllowProxyURL: true, DeniedCIDRs: clusterstest.CIDRs("10.0.0.2/32")}, adjust: func(c *cluster, _ *user) { c.ProxyURL = "http://10.0.0.2" }, want: flotillav1.ReasonEndpointNotAllowed},
		"a program all the same":       {policy: loose, adjust: func(_ *cluster, u *user) { u.Exec = &clientcmdapi.ExecConfig{Command: "sh"} }, want: flotillav1.ReasonExecNotAllowed},
		"a file all the same":          {policy: loose, adjust: func(_ *cluster, u *user) { u.TokenFile = "/token" }, want: flotillav1.ReasonFileReferenceNotAllowed},
		"no verification all the same": {policy: loose, adjust: func(c *cluster, _ *user) { c.InsecureSkipTLSVerify = true }, want: flotillav1.ReasonInsecureTLSNotAllowed},
		"plain HTTP all the same":      {policy: loose, adjust: func(c *cluster, _ *user) { c.Server = "http://10.0.0.1" }, want: flotillav1.ReasonHTTPNotAllowed},
		"a password all the same":      {policy: loose, adjust: func(_ *cluster, u *user) { u.Password = "p" }, want: flotillav1.ReasonBasicAuthNotAllowed},
		"impersonation all the same":   {policy: loose, adjust: func(_ *cluster, u *user) { u.Impersonate = "admin" }, want: flotillav1.ReasonImpersonationNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			raw := clusterstest.Kubeconfig(t, "https://10.0.0.1:6443", ca, func(_ *clientcmdapi.Config, c *cluster, u *user) { tc.adjust(c, u) })
			accepted, refused := Parse(raw, &Rules{Policy: tc.policy})
			switch {
			case tc.want != "" && (refused == nil || refused.Reason != tc.want):
				t.Errorf("got %v, want %s", refused, tc.want)
			case tc.want == "" && refused != nil:
				t.Error(refused)
			case tc.want == "":
				if config, err := accepted.TLSConfig(); err != nil || config.InsecureSkipVerify {
					t.Errorf("the server is not verified: %+v, %v", config, err)
				}
			}
		})
	}
}
