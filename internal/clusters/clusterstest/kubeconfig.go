// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// SecretToken is the token in what Kubeconfig makes.
const SecretToken = "s3cr3t-t0ken"

// KeyPair makes a self-signed certificate for 127.0.0.1 that ends at a fixed time.
func KeyPair(t testing.TB, ends time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: ends, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// Kubeconfig makes a kubeconfig with a token; adjust changes it.
func Kubeconfig(t testing.TB, server string, ca []byte, adjust func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config := &clientcmdapi.Config{
		Kind: "Config", APIVersion: "v1", CurrentContext: "now",
		Contexts:  []clientcmdapi.NamedContext{{Name: "now", Context: clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}}},
		Clusters:  []clientcmdapi.NamedCluster{{Name: "c", Cluster: clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}}},
		AuthInfos: []clientcmdapi.NamedAuthInfo{{Name: "u", AuthInfo: clientcmdapi.AuthInfo{Token: SecretToken}}},
	}
	if adjust != nil {
		adjust(config, &config.Clusters[0].Cluster, &config.AuthInfos[0].AuthInfo)
	}
	raw, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TLSServer is a fake API server over TLS and HTTP/2.
func TLSServer(t testing.TB, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(func() {
		// Close waits for connections that are in use, and a client that is still running makes another one at once.
		_ = server.Listener.Close()
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// CIDRs parses prefixes.
func CIDRs(list ...string) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, cidr := range list {
		prefixes = append(prefixes, netip.MustParsePrefix(cidr))
	}
	return prefixes
}
