// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"encoding/json"
	"fmt"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// argoCDConfig is the JSON document in a cluster Secret of Argo CD, with every field that Argo CD knows: those that are
// refused have a reason of their own.
type argoCDConfig struct {
	Username        string          `json:"username"`
	Password        string          `json:"password"`
	BearerToken     string          `json:"bearerToken"`
	TLSClientConfig argoCDTLS       `json:"tlsClientConfig"`
	AWSAuth         json.RawMessage `json:"awsAuthConfig"`
	ExecProvider    json.RawMessage `json:"execProviderConfig"`
	ProxyURL        string          `json:"proxyUrl"`
	// DisableCompression only concerns how Argo CD reads.
	DisableCompression bool `json:"disableCompression"`
}

// argoCDTLS is how the server is verified, and the client certificate.
type argoCDTLS struct {
	Insecure   bool   `json:"insecure"`
	ServerName string `json:"serverName"`
	CertData   []byte `json:"certData"`
	KeyData    []byte `json:"keyData"`
	CAData     []byte `json:"caData"`
}

// parseArgoCD accepts or refuses the content of a cluster Secret of Argo CD, by the same rules as a kubeconfig.
func parseArgoCD(content []byte, by *rules) (*credential, *refusal) {
	secret := &argoCDSecret{}
	if err := json.Unmarshal(content, secret); err != nil {
		return nil, refuseCredential(flotillav1.ReasonParseError, "The Secret cannot be read; write it anew")
	}
	switch {
	case len(secret.Server)+len(secret.Config) > maxCredentialBytes:
		return nil, refuseCredential(flotillav1.ReasonTooLarge, "Server and config of the Secret are larger than 256 KiB; leave out what the manager does not need")
	case len(secret.Config) == 0:
		return nil, refuseCredential(flotillav1.ReasonKeyMissing, "The config of the Secret is empty; put a credential there")
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

// refuse refuses what runs a program, fetches a credential, or weakens the connection.
func (c *argoCDConfig) refuse() *refusal {
	no := func(reason, field, why string) *refusal {
		return refuseCredential(reason, fmt.Sprintf("The config of the Secret has the field %s, %s", field, why))
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

// isSet says whether a field is there and not null.
func isSet(field json.RawMessage) bool { return len(field) > 0 && string(field) != "null" }
