// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

func TestParseCredential_refuses(t *testing.T) {
	ca, _ := clusterstest.KeyPair(t, time.Now().Add(time.Hour))
	type (
		config  = clientcmdapi.Config
		cluster = clientcmdapi.Cluster
		user    = clientcmdapi.AuthInfo
	)
	server := func(server string) func(*config, *cluster, *user) {
		return func(_ *config, c *cluster, _ *user) { c.Server = server }
	}
	tests := map[string]struct {
		adjust func(*config, *cluster, *user)
		raw    string
		want   string
	}{
		"binary garbage":          {raw: "\x00\xff\x01", want: flotillav1.ReasonParseError},
		"a list":                  {raw: "[1, 2]", want: flotillav1.ReasonParseError},
		"an unknown field":        {raw: "{current-contxt: a}", want: flotillav1.ReasonParseError},
		"a duplicate field":       {raw: "{kind: Config, kind: Config}", want: flotillav1.ReasonParseError},
		"nothing":                 {raw: "", want: flotillav1.ReasonKeyMissing},
		"too much":                {raw: strings.Repeat("#", MaxCredentialBytes+1), want: flotillav1.ReasonTooLarge},
		"no current context":      {adjust: func(c *config, _ *cluster, _ *user) { c.CurrentContext = "" }, want: flotillav1.ReasonContextInvalid},
		"unknown context":         {adjust: func(c *config, _ *cluster, _ *user) { c.CurrentContext = "x" }, want: flotillav1.ReasonContextInvalid},
		"unknown cluster":         {adjust: func(c *config, _ *cluster, _ *user) { c.Contexts[0].Context.Cluster = "x" }, want: flotillav1.ReasonContextInvalid},
		"unknown user":            {adjust: func(c *config, _ *cluster, _ *user) { c.Contexts[0].Context.AuthInfo = "x" }, want: flotillav1.ReasonContextInvalid},
		"no credential":           {adjust: func(_ *config, _ *cluster, u *user) { u.Token = "" }, want: flotillav1.ReasonCredentialMissing},
		"certificate without key": {adjust: func(_ *config, _ *cluster, u *user) { u.Token, u.ClientCertificateData = "", ca }, want: flotillav1.ReasonCredentialMissing},
		"no authority":            {adjust: func(_ *config, c *cluster, _ *user) { c.CertificateAuthorityData = nil }, want: flotillav1.ReasonCAMissing},
		"authority of no use":     {adjust: func(_ *config, c *cluster, _ *user) { c.CertificateAuthorityData = []byte("x") }, want: flotillav1.ReasonCAMissing},
		"exec":                    {adjust: func(_ *config, _ *cluster, u *user) { u.Exec = &clientcmdapi.ExecConfig{Command: "sh"} }, want: flotillav1.ReasonExecNotAllowed},
		"exec of another user": {adjust: func(c *config, _ *cluster, _ *user) {
			c.AuthInfos = append(c.AuthInfos, otherUser(&clientcmdapi.ExecConfig{Command: "sh"}))
		}, want: flotillav1.ReasonExecNotAllowed},
		"auth-provider":            {adjust: func(_ *config, _ *cluster, u *user) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} }, want: flotillav1.ReasonAuthProviderNotAllowed},
		"token file":               {adjust: func(_ *config, _ *cluster, u *user) { u.TokenFile = "/etc/passwd" }, want: flotillav1.ReasonFileReferenceNotAllowed},
		"certificate file":         {adjust: func(_ *config, _ *cluster, u *user) { u.ClientCertificate = "/c" }, want: flotillav1.ReasonFileReferenceNotAllowed},
		"key file":                 {adjust: func(_ *config, _ *cluster, u *user) { u.ClientKey = "/k" }, want: flotillav1.ReasonFileReferenceNotAllowed},
		"authority file":           {adjust: func(_ *config, c *cluster, _ *user) { c.CertificateAuthority = "/ca" }, want: flotillav1.ReasonFileReferenceNotAllowed},
		"insecure":                 {adjust: func(_ *config, c *cluster, _ *user) { c.InsecureSkipTLSVerify = true }, want: flotillav1.ReasonInsecureTLSNotAllowed},
		"user name":                {adjust: func(_ *config, _ *cluster, u *user) { u.Username = "admin" }, want: flotillav1.ReasonBasicAuthNotAllowed},
		"password in the URL":      {adjust: server("https://a:b@10.0.0.1"), want: flotillav1.ReasonBasicAuthNotAllowed},
		"impersonation":            {adjust: func(_ *config, _ *cluster, u *user) { u.Impersonate = "root" }, want: flotillav1.ReasonImpersonationNotAllowed},
		"impersonated groups":      {adjust: func(_ *config, _ *cluster, u *user) { u.ImpersonateGroups = []string{"system:masters"} }, want: flotillav1.ReasonImpersonationNotAllowed},
		"proxy":                    {adjust: func(_ *config, c *cluster, _ *user) { c.ProxyURL = "http://proxy" }, want: flotillav1.ReasonProxyNotAllowed},
		"http":                     {adjust: server("http://10.0.0.1"), want: flotillav1.ReasonHTTPNotAllowed},
		"no scheme":                {adjust: server("10.0.0.1:6443"), want: flotillav1.ReasonHTTPNotAllowed},
		"metadata address":         {adjust: server("https://169.254.169.254/"), want: flotillav1.ReasonEndpointNotAllowed},
		"mapped metadata address":  {adjust: server("https://[::ffff:169.254.169.254]/"), want: flotillav1.ReasonEndpointNotAllowed},
		"link-local address":       {adjust: server("https://[fe80::1]:6443"), want: flotillav1.ReasonEndpointNotAllowed},
		"unspecified address":      {adjust: server("https://0.0.0.0:6443"), want: flotillav1.ReasonEndpointNotAllowed},
		"metadata name":            {adjust: server("https://metadata.google.internal."), want: flotillav1.ReasonEndpointNotAllowed},
		"the hub":                  {adjust: server("https://HUB.example.com"), want: flotillav1.ReasonSelfRegistration},
		"the hub's own name":       {adjust: server("https://kubernetes.default.svc"), want: flotillav1.ReasonSelfRegistration},
		"a token with a line feed": {adjust: func(_ *config, _ *cluster, u *user) { u.Token = "a\nb" }, want: flotillav1.ReasonParseError},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			raw := []byte(tc.raw)
			if tc.adjust != nil {
				raw = clusterstest.Kubeconfig(t, "https://10.0.0.1:6443", ca, tc.adjust)
			}
			accepted, refused := Parse(raw, &Rules{HubEndpoints: HubEndpoints("https://hub.example.com:443", nil)})
			if refused == nil {
				t.Fatalf("accepted %v, want it refused with %s", accepted, tc.want)
			}
			if refused.Reason != tc.want || refused.State != clusters.StateInvalid || !refused.Final {
				t.Errorf("refused with %+v, want reason %s", refused, tc.want)
			}
			if strings.Contains(refused.Message, clusterstest.SecretToken) {
				t.Errorf("the message reveals the token: %s", refused.Message)
			}
		})
	}
}

func otherUser(exec *clientcmdapi.ExecConfig) clientcmdapi.NamedAuthInfo {
	return clientcmdapi.NamedAuthInfo{Name: "other", AuthInfo: clientcmdapi.AuthInfo{Exec: exec}}
}

func TestParseCredential_accepts(t *testing.T) {
	ends := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	certificate, key := clusterstest.KeyPair(t, ends)
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, ends.Unix()))
	tests := map[string]struct {
		adjust      func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		wantKind    string
		wantExpires time.Time
	}{
		"an opaque token": {wantKind: credentialToken},
		"a token that ends": {adjust: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token = "e30." + claims + ".c2ln"
		}, wantKind: credentialToken, wantExpires: ends},
		"a client certificate": {adjust: func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token, u.ClientCertificateData, u.ClientKeyData = "", certificate, key
		}, wantKind: credentialClientCertificate, wantExpires: ends},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			raw := clusterstest.Kubeconfig(t, "https://LOCALHOST:6443/prefix/", certificate, tc.adjust)
			accepted, refused := Parse(raw, &Rules{})
			if refused != nil {
				t.Fatal(refused)
			}
			if accepted.kind != tc.wantKind || !accepted.expires.Equal(tc.wantExpires) || accepted.Endpoint() != "127.0.0.1:6443" {
				t.Errorf("got %s until %s at %s", accepted.kind, accepted.expires, accepted.Endpoint())
			}
		})
	}
}

func TestCredential_shows_no_secret(t *testing.T) {
	certificate, key := clusterstest.KeyPair(t, time.Now().Add(time.Hour))
	raw := clusterstest.Kubeconfig(t, "https://10.0.0.1", certificate, nil)
	accepted, refused := Parse(raw, &Rules{})
	if refused != nil {
		t.Fatal(refused)
	}
	accepted.key = seal(key)
	nested := struct {
		credential Credential
		pointer    *Credential
		registered Registration
	}{*accepted, accepted, Registration{kubeconfig: seal(raw)}}
	encoded, err := json.Marshal(accepted)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb+verb+verb, accepted, *accepted, nested)
	}
	for _, secret := range []string{clusterstest.SecretToken, fmt.Sprintf("%x", clusterstest.SecretToken), fmt.Sprintf("%d", []byte(clusterstest.SecretToken)), "PRIVATE KEY", "s3cr3t"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q is shown", secret)
		}
	}
	if !strings.Contains(shown, "[redacted]") || !strings.Contains(shown, "10.0.0.1:443") {
		t.Errorf("want to see where the credential leads, got %s", shown)
	}
}
