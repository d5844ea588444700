// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

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
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	kjson "sigs.k8s.io/json"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// MaxCredentialBytes is the maximum size of a credential, because it is parsed untrusted. It is far more than one needs,
// and a quarter of the maximum size of a Secret.
const MaxCredentialBytes = 256 << 10

// Kinds of credentials, as in the status of MemberCluster.
const (
	credentialToken             = "Token"
	credentialClientCertificate = "ClientCertificate"
)

// sealed holds bytes that no formatting verb and no encoder can print, even if nested: fmt does not call the methods of
// unexported fields, but it cannot look into a function either.
type sealed struct{ open func() []byte }

// seal seals data.
func seal(data []byte) sealed { return sealed{open: func() []byte { return data }} }

// reveal returns the sealed data.
func (s sealed) reveal() []byte {
	if s.open == nil {
		return nil
	}
	return s.open()
}

// Credential is an accepted kubeconfig: one server, how to verify it, and one way to authenticate.
type Credential struct {
	// server is an https URL; its path is a prefix of every request.
	server *url.URL
	// serverName overrides the host in the verification of the server's certificate.
	serverName string
	// roots are nil for the system roots.
	roots *x509.CertPool
	// proxy is nil for none. policy restricts what may be dialed.
	proxy  *url.URL
	policy *Policy
	kind   string
	token  sealed
	// certificate and key are PEM.
	certificate, key sealed
	// issued and expires are zero if the credential does not contain them.
	issued, expires time.Time
	// fingerprint identifies the content of the credential.
	fingerprint string
}

// Endpoint returns the host and port of the server.
func (c *Credential) Endpoint() string { return hostPort(c.server) }

// Server returns the https URL of the server; its path is a prefix of every request.
func (c *Credential) Server() *url.URL { return c.server }

// Proxy returns the URL of the proxy, or nil.
func (c *Credential) Proxy() *url.URL { return c.proxy }

// Expires returns when the credential expires, or zero if that is unknown.
func (c *Credential) Expires() time.Time { return c.expires }

// Fingerprint returns an identifier of the content. Credentials of equal content have equal fingerprints.
func (c *Credential) Fingerprint() string { return c.fingerprint }

// Control implements the address policy of the hub. It is used as Control of a net.Dialer.
func (c *Credential) Control(network, address string, conn syscall.RawConn) error {
	return c.policy.control(network, address, conn)
}

// Authorize removes the Authorization header of a request, and sets its own if the credential is a token.
func (c *Credential) Authorize(header http.Header) {
	header.Del("Authorization")
	if c.kind == credentialToken {
		header.Set("Authorization", "Bearer "+string(c.token.reveal()))
	}
}

// TLSConfig returns a configuration that verifies the server and, with a client certificate, authenticates.
func (c *Credential) TLSConfig() (*tls.Config, error) {
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

// Status returns the publishable description of the credential.
func (c *Credential) Status() *flotillav1.CredentialStatus {
	status := &flotillav1.CredentialStatus{Kind: c.kind}
	if !c.expires.IsZero() {
		status.ExpirationTime = &metav1.Time{Time: c.expires}
	}
	return status
}

// String returns the endpoint and the kind. It never contains the credential itself.
func (c Credential) String() string {
	if c.server == nil {
		return "credential{}"
	}
	return "credential{" + hostPort(c.server) + " " + c.kind + " [redacted]}"
}

// GoString implements fmt.GoStringer.
func (c Credential) GoString() string { return c.String() }

// Format implements fmt.Formatter, so that no verb bypasses String.
func (c Credential) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(c.String())) }

// MarshalJSON implements json.Marshaler.
func (c Credential) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Parse accepts or refuses a kubeconfig by its bytes alone. It opens no files, runs no programs and does not use the
// network. client-go's loading rules would, so they are not used.
//
// Programs, auth-providers and files are refused anywhere in the kubeconfig, even in entries that are not current: that
// is the simplest rule, and switching the context later cannot enable them. Everything else is checked in the current
// context only.
func Parse(kubeconfig []byte, by *Rules) (*Credential, *verdict.Refusal) {
	switch {
	case len(kubeconfig) > MaxCredentialBytes:
		return nil, verdict.RefuseCredential(flotillav1.ReasonTooLarge, "The kubeconfig is larger than 256 KiB; leave out what the manager does not need")
	case len(kubeconfig) == 0:
		return nil, verdict.RefuseCredential(flotillav1.ReasonKeyMissing, "The kubeconfig is empty; put one there")
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

// accept returns a credential for a cluster and a user.
func accept(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo, by *Rules) (*Credential, *verdict.Refusal) {
	accepted := &Credential{serverName: cluster.TLSServerName, policy: &by.Policy}
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

// unmarshalYAML decodes YAML or JSON. Field names are case-sensitive: encoding/json would also accept EXEC for exec, and
// one of the two would hide the other.
func unmarshalYAML(content []byte, into any) (strict []error, err error) {
	encoded, err := toJSON(content)
	if err != nil {
		return nil, err
	}
	return kjson.UnmarshalStrict(encoded, into)
}

// unknownField matches the field name in the decoder's message.
var unknownField = regexp.MustCompile(`unknown field "(?:[^"]*\.)?([A-Za-z][A-Za-z-]{0,62})"`)

// refuseUnparsed converts errors of the decoder to a refusal, or nil. It does not quote the decoder, because its messages
// contain values.
func refuseUnparsed(what, want string, strict []error, err error) *verdict.Refusal {
	switch {
	case errors.Is(err, errTooManyElements):
		return verdict.RefuseCredential(flotillav1.ReasonTooLarge, fmt.Sprintf("The %s has more than %d keys, list items and lines; leave out what the manager does not need", what, maxElements))
	case errors.Is(err, errAlias):
		return verdict.RefuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s has a YAML anchor or alias; write the value out", what))
	case err != nil:
		return verdict.RefuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s is not valid %s; correct it", what, want))
	case len(strict) == 0:
		return nil
	}
	if match := unknownField.FindStringSubmatch(strict[0].Error()); match != nil {
		return verdict.RefuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s has the unknown field %q; remove it", what, match[1]))
	}
	return verdict.RefuseCredential(flotillav1.ReasonParseError, fmt.Sprintf("The %s has an unknown or a doubled field; remove it", what))
}

// refuseDangerous refuses kubeconfigs that would run a program or read a file in the manager.
func refuseDangerous(config *clientcmdapi.Config) *verdict.Refusal {
	for _, named := range config.AuthInfos {
		user := named.AuthInfo
		switch {
		case user.Exec != nil:
			return verdict.RefuseCredential(flotillav1.ReasonExecNotAllowed, "The kubeconfig has the field exec, and programs are not executed; use a token or a client certificate")
		case user.AuthProvider != nil:
			return verdict.RefuseCredential(flotillav1.ReasonAuthProviderNotAllowed, "The kubeconfig has the field auth-provider, which is not supported; use a token or a client certificate")
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
func refuseFile(field string) *verdict.Refusal {
	return verdict.RefuseCredential(flotillav1.ReasonFileReferenceNotAllowed,
		fmt.Sprintf("The kubeconfig has the field %s, and files are not read; embed the data", field))
}

// currentEntries returns the cluster and the user of the current context.
func currentEntries(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *verdict.Refusal) {
	if config.CurrentContext == "" {
		return nil, nil, verdict.RefuseCredential(flotillav1.ReasonContextInvalid, "The kubeconfig has no current-context; set it")
	}
	context := slices.IndexFunc(config.Contexts, func(c clientcmdapi.NamedContext) bool { return c.Name == config.CurrentContext })
	if context < 0 {
		return nil, nil, verdict.RefuseCredential(flotillav1.ReasonContextInvalid, "The current-context of the kubeconfig does not exist; set one that does")
	}
	current := config.Contexts[context].Context
	cluster := slices.IndexFunc(config.Clusters, func(c clientcmdapi.NamedCluster) bool { return c.Name == current.Cluster })
	if cluster < 0 {
		return nil, nil, verdict.RefuseCredential(flotillav1.ReasonContextInvalid, "The cluster of the current context does not exist; add it to clusters")
	}
	user := slices.IndexFunc(config.AuthInfos, func(u clientcmdapi.NamedAuthInfo) bool { return u.Name == current.AuthInfo })
	if user < 0 {
		return nil, nil, verdict.RefuseCredential(flotillav1.ReasonContextInvalid, "The user of the current context does not exist; add it to users")
	}
	return &config.Clusters[cluster].Cluster, &config.AuthInfos[user].AuthInfo, nil
}

// takeServer validates and sets the server and the proxy.
func (c *Credential) takeServer(cluster *clientcmdapi.Cluster, by *Rules) *verdict.Refusal {
	if cluster.InsecureSkipTLSVerify {
		return verdict.RefuseCredential(flotillav1.ReasonInsecureTLSNotAllowed,
			"The kubeconfig sets insecure-skip-tls-verify; remove it and set certificate-authority-data")
	}
	proxy, refused := by.Policy.takeProxy(cluster.ProxyURL)
	if refused != nil {
		return refused
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" {
		return verdict.RefuseCredential(flotillav1.ReasonHTTPNotAllowed, "The server of the registration is not an https URL; correct it")
	}
	switch {
	case server.User != nil:
		return verdict.RefuseCredential(flotillav1.ReasonBasicAuthNotAllowed,
			"The server of the registration contains a user name or password; use a token or a client certificate")
	case server.Hostname() == "" || server.RawQuery != "" || server.Fragment != "" || server.Opaque != "":
		return verdict.RefuseCredential(flotillav1.ReasonEndpointNotAllowed, "The server of the registration is not a plain URL of host, port and path; correct it")
	case slices.Contains(by.HubEndpoints, hostPort(server)):
		return refuseSelf()
	}
	if refused := by.Policy.refuseHost(server.Hostname()); refused != nil {
		return refused
	}
	server.Path = strings.TrimSuffix(server.Path, "/")
	server.RawPath = ""
	c.server, c.proxy = server, proxy
	return nil
}

// refuseSelf refuses a registration that leads to the hub.
func refuseSelf() *verdict.Refusal {
	return verdict.RefuseCredential(flotillav1.ReasonSelfRegistration, "The registration leads to the hub itself, which cannot be a member; remove it or correct its server")
}

// takeRoots validates and sets the certificate authorities.
func (c *Credential) takeRoots(cluster *clientcmdapi.Cluster, by *Rules) *verdict.Refusal {
	if len(cluster.CertificateAuthorityData) == 0 {
		if by.Policy.AllowSystemRoots {
			return nil
		}
		return verdict.RefuseCredential(flotillav1.ReasonCAMissing, "The registration has no certificate authority data; add that of the member")
	}
	var err error
	if c.roots, err = rootsOf(cluster.CertificateAuthorityData); err != nil {
		return refuseKey("certificate authority")
	}
	if c.roots == nil {
		return verdict.RefuseCredential(flotillav1.ReasonCAMissing, "The certificate authority data of the registration holds no certificate; it must be PEM, encoded in base64")
	}
	return nil
}

// refuseKey refuses an RSA key that is too expensive to compute with.
func refuseKey(owner string) *verdict.Refusal {
	return verdict.RefuseCredential(flotillav1.ReasonTooLarge, fmt.Sprintf("The RSA key of the %s of the registration has more than %d bits; use a smaller one", owner, maxKeyBits))
}

// takeUser validates and sets the authentication.
func (c *Credential) takeUser(user *clientcmdapi.AuthInfo) *verdict.Refusal {
	switch {
	case user.Username != "" || user.Password != "":
		return verdict.RefuseCredential(flotillav1.ReasonBasicAuthNotAllowed, "The kubeconfig has a username or password; use a token or a client certificate")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0:
		return verdict.RefuseCredential(flotillav1.ReasonImpersonationNotAllowed, "The kubeconfig impersonates another user; use a credential of that user instead")
	case len(user.ClientCertificateData) > 0 && len(user.ClientKeyData) > 0:
		c.kind = credentialClientCertificate
		c.certificate, c.key = seal(user.ClientCertificateData), seal(user.ClientKeyData)
		config, err := c.TLSConfig()
		if errors.Is(err, errKeyTooLarge) {
			return refuseKey("client key")
		}
		if err != nil {
			return verdict.RefuseCredential(flotillav1.ReasonParseError, "The client certificate and key of the registration do not belong together; put a pair there")
		}
		if leaf := config.Certificates[0].Leaf; leaf != nil {
			c.issued, c.expires = leaf.NotBefore, leaf.NotAfter
		}
	case user.Token != "":
		if strings.ContainsFunc(user.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return verdict.RefuseCredential(flotillav1.ReasonParseError, "The token of the registration has characters that no token has; put it there without spaces and line feeds")
		}
		c.kind = credentialToken
		c.token = seal([]byte(user.Token))
		c.issued, c.expires = TokenLifetime(user.Token)
	default:
		return verdict.RefuseCredential(flotillav1.ReasonCredentialMissing, "The registration has neither a token nor a client certificate with its key; add one as data")
	}
	return nil
}

// maxTime is the last second that a Kubernetes timestamp can represent.
const maxTime = 253402300799

// TokenLifetime returns the claims iat (or nbf) and exp of a JSON web token, or zero for those that are missing. The
// token is not verified: the times are informational only.
func TokenLifetime(token string) (issued, expires time.Time) {
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

// fingerprint hashes the content of a credential, so that credentials can be compared without revealing them.
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

// hostPort returns the host and port of a URL in normalized form, so that endpoints can be compared.
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
