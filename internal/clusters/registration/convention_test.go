// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
)

func TestConventions_recognise_and_name(t *testing.T) {
	for name, tc := range map[string]struct {
		convention Convention
		secret     string
		labels     map[string]string
		data       map[string]string
		want       string
		wantReason string
		// wantKept are the keys whose data is kept.
		wantKept []string
	}{
		"cluster-api": {
			convention: ConventionClusterAPI, secret: "eu-1-kubeconfig", labels: map[string]string{LabelClusterAPIName: "eu-1"},
			data: map[string]string{"value": "x", "other": "x"}, want: "eu-1", wantKept: []string{"value"},
		},
		"cluster-api, another Secret of the cluster": {
			convention: ConventionClusterAPI, secret: "eu-1-ca", labels: map[string]string{LabelClusterAPIName: "eu-1"},
			data: map[string]string{"tls.key": "x", "value": "x"},
		},
		"cluster-api, another cluster's name": {
			convention: ConventionClusterAPI, secret: "eu-1-kubeconfig", labels: map[string]string{LabelClusterAPIName: "eu-2"},
			data: map[string]string{"value": "x"},
		},
		"cluster-api without the key": {
			convention: ConventionClusterAPI, secret: "eu-1-kubeconfig", labels: map[string]string{LabelClusterAPIName: "eu-1"},
			data: map[string]string{"kubeconfig": "x"}, want: "eu-1", wantReason: flotillav1.ReasonKeyMissing,
		},
		"argo-cd": {
			convention: ConventionArgoCD, secret: "cluster-1", labels: map[string]string{LabelArgoCDSecretType: "cluster"},
			data: map[string]string{"name": "eu-1", "server": "x", "config": "x", "shard": "1"}, want: "eu-1", wantKept: []string{"config", "name", "server"},
		},
		"argo-cd with a URL for a name": {
			convention: ConventionArgoCD, secret: "cluster-1", labels: map[string]string{LabelArgoCDSecretType: "cluster"},
			data: map[string]string{"name": "https://10.0.0.1", "server": "x", "config": "x"}, want: "cluster-1", wantKept: []string{"config", "name", "server"},
		},
		"argo-cd without a name": {
			convention: ConventionArgoCD, secret: "cluster-1", labels: map[string]string{LabelArgoCDSecretType: "cluster"},
			data: map[string]string{"server": "x", "config": "x"}, want: "cluster-1", wantKept: []string{"config", "server"},
		},
		"argo-cd without a fit name": {
			convention: ConventionArgoCD, secret: "cluster-10.0.0.1-12", labels: map[string]string{LabelArgoCDSecretType: "cluster"},
			data: map[string]string{"server": "x", "config": "x"}, want: "cluster-10.0.0.1-12",
			wantReason: flotillav1.ReasonInvalidName, wantKept: []string{"config", "server"},
		},
		"argo-cd without a server": {
			convention: ConventionArgoCD, secret: "cluster-1", labels: map[string]string{LabelArgoCDSecretType: "cluster"},
			data: map[string]string{"config": "x"}, want: "cluster-1", wantReason: flotillav1.ReasonKeyMissing, wantKept: []string{"config"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			by := tc.convention
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Name: tc.secret, Labels: tc.labels,
					Annotations: map[string]string{lastApplied: clusterstest.SecretToken, flotillav1.AnnotationPaused: "true"},
				},
				Data: map[string][]byte{},
			}
			for key, value := range tc.data {
				secret.Data[key] = []byte(value)
			}
			by.Trim(secret)
			var kept []string
			for _, key := range []string{"config", "kubeconfig", "name", "other", "server", "shard", "tls.key", "value"} {
				if _, ok := secret.Data[key]; ok {
					kept = append(kept, key)
				}
			}
			if diff := cmp.Diff(tc.wantKept, kept); diff != "" {
				t.Errorf("kept data (-want +got):\n%s", diff)
			}
			if _, ok := secret.Annotations[lastApplied]; ok || secret.Annotations[flotillav1.AnnotationPaused] != "true" {
				t.Errorf("the copy that kubectl apply made is to be dropped, and nothing else: %v", secret.Annotations)
			}
			if recognised := by.Recognises(secret); recognised != (tc.want != "") {
				t.Fatalf("recognised: %v", recognised)
			}
			if tc.want == "" {
				return
			}
			got := by.Read(secret)
			reason := ""
			if got.refused != nil {
				reason = got.refused.Reason
			}
			if string(got.ClusterName) != tc.want || reason != tc.wantReason || len(got.Labels) > 0 {
				t.Errorf("got %q with reason %q and labels %v", got.ClusterName, reason, got.Labels)
			}
		})
	}
}

// argoCDRegistration is the content of a cluster Secret of Argo CD.
func argoCDRegistration(t testing.TB, server, config string) []byte {
	t.Helper()
	content, missing := argoCDContent(&corev1.Secret{Data: map[string][]byte{"server": []byte(server), "config": []byte(config)}})
	if missing != "" {
		t.Fatalf("key %q is missing", missing)
	}
	return content
}

func TestParseArgoCD(t *testing.T) {
	ends := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	certificate, key := clusterstest.KeyPair(t, ends)
	ca := fmt.Sprintf(`"caData":%q`, base64.StdEncoding.EncodeToString(certificate))
	pair := fmt.Sprintf(`"certData":%q,"keyData":%q`, base64.StdEncoding.EncodeToString(certificate), base64.StdEncoding.EncodeToString(key))
	token := fmt.Sprintf(`"bearerToken":%q`, clusterstest.SecretToken)
	const server = "https://10.0.0.1:6443"
	for name, tc := range map[string]struct {
		server, config string
		wantReason     string
		wantKind       string
	}{
		"a token":              {config: `{` + token + `,"tlsClientConfig":{` + ca + `,"insecure":false,"serverName":"api"}}`, wantKind: credentialToken},
		"a client certificate": {config: `{"tlsClientConfig":{` + ca + `,` + pair + `}}`, wantKind: credentialClientCertificate},
		"nulls and defaults": {
			config:   `{"username":"","awsAuthConfig":null,"execProviderConfig":null,"proxyUrl":"","disableCompression":true,` + token + `,"tlsClientConfig":{` + ca + `}}`,
			wantKind: credentialToken,
		},
		"a program":             {config: `{"execProviderConfig":{"command":"touch"},` + token + `,"tlsClientConfig":{` + ca + `}}`, wantReason: flotillav1.ReasonExecNotAllowed},
		"an empty program":      {config: `{"execProviderConfig":{}}`, wantReason: flotillav1.ReasonExecNotAllowed},
		"AWS":                   {config: `{"awsAuthConfig":{"clusterName":"x"},"tlsClientConfig":{` + ca + `}}`, wantReason: flotillav1.ReasonAuthProviderNotAllowed},
		"a user name":           {config: `{"username":"admin","tlsClientConfig":{` + ca + `}}`, wantReason: flotillav1.ReasonBasicAuthNotAllowed},
		"a password":            {config: `{"password":"s3cr3t-t0ken","tlsClientConfig":{` + ca + `}}`, wantReason: flotillav1.ReasonBasicAuthNotAllowed},
		"insecure":              {config: `{` + token + `,"tlsClientConfig":{"insecure":true}}`, wantReason: flotillav1.ReasonInsecureTLSNotAllowed},
		"a proxy":               {config: `{"proxyUrl":"http://proxy",` + token + `,"tlsClientConfig":{` + ca + `}}`, wantReason: flotillav1.ReasonProxyNotAllowed},
		"http":                  {server: "http://10.0.0.1", config: `{` + token + `}`, wantReason: flotillav1.ReasonHTTPNotAllowed},
		"metadata":              {server: "https://169.254.169.254", config: `{` + token + `}`, wantReason: flotillav1.ReasonEndpointNotAllowed},
		"in-cluster":            {server: "https://kubernetes.default.svc", config: `{"tlsClientConfig":{"insecure":false}}`, wantReason: flotillav1.ReasonSelfRegistration},
		"no authority":          {config: `{` + token + `}`, wantReason: flotillav1.ReasonCAMissing},
		"no credential":         {config: `{"tlsClientConfig":{` + ca + `}}`, wantReason: flotillav1.ReasonCredentialMissing},
		"an unknown field":      {config: `{"tlsClientConfig":{"caFile":"/ca"}}`, wantReason: flotillav1.ReasonParseError},
		"a name in other case":  {config: `{"ExecProviderConfig":{"command":"touch"}}`, wantReason: flotillav1.ReasonParseError},
		"a doubled field":       {config: `{"proxyUrl":"http://proxy","proxyUrl":""}`, wantReason: flotillav1.ReasonParseError},
		"no JSON":               {config: `bearerToken: s3cr3t-t0ken`, wantReason: flotillav1.ReasonParseError},
		"a token in a key":      {config: `{"s3cr3t-t0ken":1}`, wantReason: flotillav1.ReasonParseError},
		"bad base64":            {config: `{"tlsClientConfig":{"caData":"s3cr3t-t0ken!"}}`, wantReason: flotillav1.ReasonParseError},
		"nothing":               {config: "", wantReason: flotillav1.ReasonKeyMissing},
		"too much":              {config: strings.Repeat(" ", MaxCredentialBytes), wantReason: flotillav1.ReasonTooLarge},
		"something after JSON":  {config: `{} {}`, wantReason: flotillav1.ReasonParseError},
		"a list instead of map": {config: `[]`, wantReason: flotillav1.ReasonParseError},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.server == "" {
				tc.server = server
			}
			accepted, refused := parseArgoCD(argoCDRegistration(t, tc.server, tc.config), &Rules{HubEndpoints: HubEndpoints("https://hub.example.com", nil)})
			if tc.wantReason != "" {
				if refused == nil || refused.Reason != tc.wantReason || !refused.Final {
					t.Fatalf("got %v, %v, want it refused with %s", accepted, refused, tc.wantReason)
				}
				if strings.Contains(refused.Message, clusterstest.SecretToken) {
					t.Errorf("the message reveals the token: %s", refused.Message)
				}
				return
			}
			if refused != nil {
				t.Fatal(refused)
			}
			if accepted.kind != tc.wantKind || accepted.Endpoint() != "10.0.0.1:6443" {
				t.Errorf("got %s at %s", accepted.kind, accepted.Endpoint())
			}
		})
	}
}
