// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/json"
	"fmt"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// argoCDConfig is the JSON document in a cluster Secret of Argo CD. It has every field that Argo CD supports, so that
// each refused field gets a reason of its own.
type argoCDConfig struct {
	Username        string          `json:"username"`
	Password        string          `json:"password"`
	BearerToken     string          `json:"bearerToken"`
	TLSClientConfig argoCDTLS       `json:"tlsClientConfig"`
	AWSAuth         json.RawMessage `json:"awsAuthConfig"`
	ExecProvider    json.RawMessage `json:"execProviderConfig"`
	ProxyURL        string          `json:"proxyUrl"`
	// DisableCompression only affects how Argo CD reads. It is ignored.
	DisableCompression bool `json:"disableCompression"`
}

// argoCDTLS holds the verification of the server, and the client certificate.
type argoCDTLS struct {
	Insecure   bool   `json:"insecure"`
	ServerName string `json:"serverName"`
	CertData   []byte `json:"certData"`
	KeyData    []byte `json:"keyData"`
	CAData     []byte `json:"caData"`
}

// parseArgoCD accepts or refuses the content of a cluster Secret of Argo CD, by the same rules as a kubeconfig.
func parseArgoCD(content []byte, by *Rules) (*Credential, *verdict.Refusal) {
	secret := &argoCDSecret{}
	if err := json.Unmarshal(content, secret); err != nil {
		return nil, verdict.RefuseCredential(flotillav1.ReasonParseError, "The Secret cannot be read; write it anew")
	}
	switch {
	case len(secret.Server)+len(secret.Config) > MaxCredentialBytes:
		return nil, verdict.RefuseCredential(flotillav1.ReasonTooLarge, "Server and config of the Secret are larger than 256 KiB; leave out what the manager does not need")
	case len(secret.Config) == 0:
		return nil, verdict.RefuseCredential(flotillav1.ReasonKeyMissing, "The config of the Secret is empty; put a credential there")
	}
	config := &argoCDConfig{}
	strict, err := kjson.UnmarshalStrict(secret.Config, config)
	if refused := refuseUnparsed("config of the Secret", "JSON as Argo CD writes it", strict, err); refused != nil {
		return nil, refused
	}
	if refused := config.refuse(); refused != nil {
		return nil, refused
	}
	cluster := &clientcmdapi.Cluster{
		Server: string(secret.Server), TLSServerName: config.TLSClientConfig.ServerName, ProxyURL: config.ProxyURL,
		CertificateAuthorityData: config.TLSClientConfig.CAData,
	}
	user := &clientcmdapi.AuthInfo{
		Token: config.BearerToken, ClientCertificateData: config.TLSClientConfig.CertData, ClientKeyData: config.TLSClientConfig.KeyData,
	}
	return accept(cluster, user, by)
}

// refuse refuses fields that run a program, fetch a credential, or weaken the connection.
func (c *argoCDConfig) refuse() *verdict.Refusal {
	no := func(reason, field, why string) *verdict.Refusal {
		return verdict.RefuseCredential(reason, fmt.Sprintf("The config of the Secret has the field %s, %s", field, why))
	}
	switch {
	case isSet(c.ExecProvider):
		return no(flotillav1.ReasonExecNotAllowed, "execProviderConfig", "and programs are not executed; use bearerToken or tlsClientConfig")
	case isSet(c.AWSAuth):
		return no(flotillav1.ReasonAuthProviderNotAllowed, "awsAuthConfig", "which is not supported; use bearerToken or tlsClientConfig")
	case c.Username != "" || c.Password != "":
		return no(flotillav1.ReasonBasicAuthNotAllowed, "username or password", "which is not supported; use bearerToken or tlsClientConfig")
	case c.TLSClientConfig.Insecure:
		return no(flotillav1.ReasonInsecureTLSNotAllowed, "insecure", "and the server's certificate is always verified; remove it and set caData")
	}
	return nil
}

// isSet reports whether a field is present and not null.
func isSet(field json.RawMessage) bool { return len(field) > 0 && string(field) != "null" }
