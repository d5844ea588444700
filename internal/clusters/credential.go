// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// maxCredentialBytes is far more than one credential takes, and a quarter of what the API server allows a Secret to hold:
// what is parsed is not trusted.
const maxCredentialBytes = 256 << 10

// Kinds of credentials, as MemberCluster's status names them.
const (
	credentialToken             = "Token"
	credentialClientCertificate = "ClientCertificate"
)

// sealed holds bytes that no formatting verb and no encoder shows, however deeply the value is nested: fmt does not call
// the methods of unexported fields, but it cannot look into a function either.
type sealed struct{ open func() []byte }

// seal hides data.
func seal(data []byte) sealed { return sealed{open: func() []byte { return data }} }

// reveal returns what is sealed.
func (s sealed) reveal() []byte {
	if s.open == nil {
		return nil
	}
	return s.open()
}

// credential is an accepted kubeconfig: one server, how to verify it, and one way to authenticate.
type credential struct {
	// server is an https URL; its path is a prefix of every request.
	server *url.URL
	// serverName overrides the host in the verification of the server's certificate.
	serverName string
	// roots are nil for those of the system.
	roots *x509.CertPool
	// proxy is nil for none; policy says what may be dialled.
	proxy  *url.URL
	policy *Policy
	kind   string
	token  sealed
	// certificate and key are PEM.
	certificate, key sealed
	// issued and expires are zero when the credential does not say.
	issued, expires time.Time
	// fingerprint is equal for credentials of equal content.
	fingerprint string
}

// endpoint is the host and port of the server.
func (c *credential) endpoint() string { return hostPort(c.server) }

// tlsConfig verifies the server and, with a client certificate, authenticates.
func (c *credential) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.roots, ServerName: c.serverName}
	if c.kind == credentialClientCertificate {
		pair, err := keyPairOf(c.certificate.reveal(), c.key.reveal())
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// status is what may be published about the credential.
func (c *credential) status() *flotillav1.CredentialStatus {
	status := &flotillav1.CredentialStatus{Kind: c.kind}
	if !c.expires.IsZero() {
		status.ExpirationTime = &metav1.Time{Time: c.expires}
	}
	return status
}

// String shows where the credential leads and never what it is.
func (c credential) String() string {
	if c.server == nil {
		return "credential{}"
	}
	return "credential{" + hostPort(c.server) + " " + c.kind + " [redacted]}"
}

// GoString implements fmt.GoStringer.
func (c credential) GoString() string { return c.String() }

// Format implements fmt.Formatter, so that no verb goes around String.
func (c credential) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(c.String())) }

// MarshalJSON implements json.Marshaler.
func (c credential) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// parseCredential accepts or refuses a kubeconfig by its bytes alone. It opens no file, runs no program and asks no
// network; client-go's own loading would, so it is not used.
//
// Programs, auth-providers and files are refused anywhere in the kubeconfig, also in entries that are not the current
// ones: it is the simplest rule and nobody can switch the context to them later. Everything else is checked in the
// current context only.
func parseCredential(kubeconfig []byte, by *rules) (*credential, *refusal) {
	switch {
	case len(kubeconfig) > maxCredentialBytes:
		return nil, refuseCredential(flotillav1.ReasonTooLarge, "The kubeconfig is larger than 256 KiB; leave out what the manager does not need")
	case len(kubeconfig) == 0:
		return nil, refuseCredential(flotillav1.ReasonKeyMissing, "The kubeconfig is empty; put one there")
	}
	config := &clientcmdapi.Config{}
	strict, err := unmarshalYAML(kubeconfig, config)
	if refused := refuseUnparsed("kubeconfig", "YAML or JSON of kind Config", strict, err); refused != nil {
		return nil, refused
	}
	if refused := refuseDangerous(config); refused != nil {
		return nil, refused
	}
	cluster, user, refused := currentEntries(config)
	if refused != nil {
		return nil, refused
	}
	return accept(cluster, user, by)
}

// accept makes a credential of one cluster and one user.
func accept(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo, by *rules) (*credential, *refusal) {
	accepted := &credential{serverName: cluster.TLSServerName, policy: &by.policy}
	if refused := accepted.takeServer(cluster, by); refused != nil {
		return nil, refused
	}
	if refused := accepted.takeRoots(cluster, by); refused != nil {
		return nil, refused
	}
	if refused := accepted.takeUser(user); refused != nil {
		return nil, refused
	}
	accepted.fingerprint = fingerprint(cluster, user)
	return accepted, nil
}

// unmarshalYAML reads YAML or JSON. Names of fields are taken as they are written: encoding/json would also take EXEC for
// exec, and one of both would hide the other.
func unmarshalYAML(content []byte, into any) (strict []error, err error) {
	encoded, err := toJSON(content)
	if err != nil {
		return nil, err
	}
	return kjson.UnmarshalStrict(encoded, into)
}

// unknownField finds the name of a field in the decoder's message.
var unknownField = regexp.MustCompile(`unknown field "(?:[^"]*\.)?([A-Za-z][A-Za-z-]{0,62})"`)

// refuseUnparsed says what is wrong without quoting the content: the decoder's own messages contain values.
func refuseUnparsed(what, want string, strict []error, err error) *refusal {
	switch {
	case errors.Is(err, errTooManyElements):
		return refuseCredential(flotillav1.ReasonTooLarge, fmt.Sprintf("The %s has more than %d keys, list items and lines; leave out what the manager does not need", what, maxElements))
	case errors.Is(err, errAlias):
		return refuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s has a YAML anchor or alias; write the value out", what))
	case err != nil:
		return refuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s is not valid %s; correct it", what, want))
	case len(strict) == 0:
		return nil
	}
	if match := unknownField.FindStringSubmatch(strict[0].Error()); match != nil {
		return refuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s has the unknown field %q; remove it", what, match[1]))
	}
	return refuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s has an unknown or a doubled field; remove it", what))
}

// refuseDangerous refuses what would run a program or read a file of the manager.
func refuseDangerous(config *clientcmdapi.Config) *refusal {
	for _, named := range config.AuthInfos {
		user := named.AuthInfo
		switch {
		case user.Exec != nil:
			return refuseCredential(flotillav1.ReasonExecNotAllowed, "The kubeconfig has the field exec, and programs are not executed; use a token or a client certificate")
		case user.AuthProvider != nil:
			return refuseCredential(flotillav1.ReasonAuthProviderNotAllowed, "The kubeconfig has the field auth-provider, which is not supported; use a token or a client certificate")
		case user.TokenFile != "":
			return refuseFile("tokenFile")
		case user.ClientCertificate != "":
			return refuseFile("client-certificate")
		case user.ClientKey != "":
			return refuseFile("client-key")
		}
	}
	for _, named := range config.Clusters {
		if named.Cluster.CertificateAuthority != "" {
			return refuseFile("certificate-authority")
		}
	}
	return nil
}

// refuseFile refuses a reference to a file.
func refuseFile(field string) *refusal {
	return refuseCredential(flotillav1.ReasonFileReferenceNotAllowed,
		fmt.Sprintf("The kubeconfig has the field %s, and files are not read; embed the data", field))
}

// currentEntries returns the cluster and the user of the current context.
func currentEntries(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *refusal) {
	if config.CurrentContext == "" {
		return nil, nil, refuseCredential(flotillav1.ReasonContextInvalid, "The kubeconfig has no current-context; set it")
	}
	context := slices.IndexFunc(config.Contexts, func(c clientcmdapi.NamedContext) bool { return c.Name == config.CurrentContext })
	if context < 0 {
		return nil, nil, refuseCredential(flotillav1.ReasonContextInvalid, "The current-context of the kubeconfig does not exist; set one that does")
	}
	current := config.Contexts[context].Context
	cluster := slices.IndexFunc(config.Clusters, func(c clientcmdapi.NamedCluster) bool { return c.Name == current.Cluster })
	if cluster < 0 {
		return nil, nil, refuseCredential(flotillav1.ReasonContextInvalid, "The cluster of the current context does not exist; add it to clusters")
	}
	user := slices.IndexFunc(config.AuthInfos, func(u clientcmdapi.NamedAuthInfo) bool { return u.Name == current.AuthInfo })
	if user < 0 {
		return nil, nil, refuseCredential(flotillav1.ReasonContextInvalid, "The user of the current context does not exist; add it to users")
	}
	return &config.Clusters[cluster].Cluster, &config.AuthInfos[user].AuthInfo, nil
}

// takeServer checks where the credential leads, and which way.
func (c *credential) takeServer(cluster *clientcmdapi.Cluster, by *rules) *refusal {
	if cluster.InsecureSkipTLSVerify {
		return refuseCredential(flotillav1.ReasonInsecureTLSNotAllowed,
			"The kubeconfig sets insecure-skip-tls-verify; remove it and set certificate-authority-data")
	}
	proxy, refused := by.policy.takeProxy(cluster.ProxyURL)
	if refused != nil {
		return refused
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" {
		return refuseCredential(flotillav1.ReasonHTTPNotAllowed, "The server of the registration is not an https URL; correct it")
	}
	switch {
	case server.User != nil:
		return refuseCredential(flotillav1.ReasonBasicAuthNotAllowed,
			"The server of the registration contains a user name or password; use a token or a client certificate")
	case server.Hostname() == "" || server.RawQuery != "" || server.Fragment != "" || server.Opaque != "":
		return refuseCredential(flotillav1.ReasonEndpointNotAllowed, "The server of the registration is not a plain URL of host, port and path; correct it")
	case slices.Contains(by.hubEndpoints, hostPort(server)):
		return refuseSelf()
	}
	if refused := by.policy.refuseHost(server.Hostname()); refused != nil {
		return refused
	}
	server.Path = strings.TrimSuffix(server.Path, "/")
	server.RawPath = ""
	c.server, c.proxy = server, proxy
	return nil
}

// refuseSelf refuses a registration that leads to the hub.
func refuseSelf() *refusal {
	return refuseCredential(flotillav1.ReasonSelfRegistration, "The registration leads to the hub itself, which is no member; remove it or correct its server")
}

// takeRoots checks how the server is verified.
func (c *credential) takeRoots(cluster *clientcmdapi.Cluster, by *rules) *refusal {
	if len(cluster.CertificateAuthorityData) == 0 {
		if by.policy.AllowSystemRoots {
			return nil
		}
		return refuseCredential(flotillav1.ReasonCAMissing, "The registration has no certificate authority data; add that of the member")
	}
	var err error
	if c.roots, err = rootsOf(cluster.CertificateAuthorityData); err != nil {
		return refuseKey("certificate authority")
	}
	if c.roots == nil {
		return refuseCredential(flotillav1.ReasonCAMissing, "The certificate authority data of the registration holds no certificate; it must be PEM, encoded in base64")
	}
	return nil
}

// refuseKey refuses an RSA key whose arithmetic would keep a processor busy.
func refuseKey(owner string) *refusal {
	return refuseCredential(flotillav1.ReasonTooLarge, fmt.Sprintf("The RSA key of the %s of the registration has more than %d bits; use a smaller one", owner, maxKeyBits))
}

// takeUser checks how the credential authenticates.
func (c *credential) takeUser(user *clientcmdapi.AuthInfo) *refusal {
	switch {
	case user.Username != "" || user.Password != "":
		return refuseCredential(flotillav1.ReasonBasicAuthNotAllowed, "The kubeconfig has a username or password; use a token or a client certificate")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0:
		return refuseCredential(flotillav1.ReasonImpersonationNotAllowed, "The kubeconfig impersonates another user; use a credential of the user that is meant")
	case len(user.ClientCertificateData) > 0 && len(user.ClientKeyData) > 0:
		c.kind = credentialClientCertificate
		c.certificate, c.key = seal(user.ClientCertificateData), seal(user.ClientKeyData)
		config, err := c.tlsConfig()
		if errors.Is(err, errKeyTooLarge) {
			return refuseKey("client key")
		}
		if err != nil {
			return refuseCredential(flotillav1.ReasonParseError, "The client certificate and key of the registration do not belong together; put a pair there")
		}
		if leaf := config.Certificates[0].Leaf; leaf != nil {
			c.issued, c.expires = leaf.NotBefore, leaf.NotAfter
		}
	case user.Token != "":
		if strings.ContainsFunc(user.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return refuseCredential(flotillav1.ReasonParseError, "The token of the registration has characters that no token has; put it there without spaces and line feeds")
		}
		c.kind = credentialToken
		c.token = seal([]byte(user.Token))
		c.issued, c.expires = tokenLifetime(user.Token)
	default:
		return refuseCredential(flotillav1.ReasonCredentialMissing, "The registration has neither a token nor a client certificate with its key; add one as data")
	}
	return nil
}

// maxTime is the last second that timestamps of Kubernetes can tell.
const maxTime = 253402300799

// tokenLifetime reads the claims iat (or nbf) and exp of a JSON web token; zero when it does not have them or is none.
// Nothing is verified: it is only shown.
func tokenLifetime(token string) (issued, expires time.Time) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return issued, expires
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return issued, expires
	}
	var claims struct {
		IssuedAt  float64 `json:"iat"`
		NotBefore float64 `json:"nbf"`
		Expiry    float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return issued, expires
	}
	at := func(seconds float64) time.Time {
		if seconds < 1 || seconds > maxTime {
			return time.Time{}
		}
		return time.Unix(int64(seconds), 0).UTC()
	}
	if issued = at(claims.IssuedAt); issued.IsZero() {
		issued = at(claims.NotBefore)
	}
	return issued, at(claims.Expiry)
}

// fingerprint tells credentials apart without revealing them.
func fingerprint(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) string {
	hash := sha256.New()
	for _, part := range [][]byte{
		[]byte(cluster.Server), []byte(cluster.TLSServerName), cluster.CertificateAuthorityData,
		[]byte(user.Token), user.ClientCertificateData, user.ClientKeyData, []byte(cluster.ProxyURL),
	} {
		_, _ = fmt.Fprintf(hash, "%d:", len(part))
		_, _ = hash.Write(part)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// hostPort is the host and port of a URL, in the one form in which endpoints are compared.
func hostPort(server *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(server.Hostname()), ".")
	if host == "localhost" {
		host = "127.0.0.1"
	}
	port := server.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(host, port)
}
