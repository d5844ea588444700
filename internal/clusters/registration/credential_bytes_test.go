// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// costly are documents of at most 256 KiB that are expensive for a decoder without bounds.
func costly() map[string]string {
	fill := func(prefix, repeated string) string {
		return prefix + strings.Repeat(repeated, (MaxCredentialBytes-len(prefix))/len(repeated))
	}
	aliases := func(anchor string) string {
		return fill("a: &a "+anchor+"\nb:\n", "- *a\n")
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ","))
	}
	distinct := &strings.Builder{}
	for i := 0; distinct.Len() < MaxCredentialBytes-16; i++ {
		fmt.Fprintf(distinct, "a%d: 1\n", i)
	}
	allowed := &strings.Builder{}
	for i := range maxElements {
		fmt.Fprintf(allowed, "a%d: %s\n", i, strings.Repeat("x", 48))
	}
	utf16LE := &strings.Builder{}
	for _, unit := range utf16.Encode([]rune("\ufeff" + strings.Repeat("- ", MaxCredentialBytes/4-2))) {
		utf16LE.WriteByte(byte(unit))
		utf16LE.WriteByte(byte(unit >> 8))
	}
	return map[string]string{
		"aliases of a long value":   aliases(strings.Repeat("x", 125<<10)),
		"aliases of a short value":  aliases("x"),
		"aliases of aliases":        bomb,
		"an alias of a user":        "users:\n- &a {name: u, user: {token: t}}\n- *a\n",
		"users without content":     "{\"users\":[" + strings.TrimSuffix(fill("", "{},"), ",")[:MaxCredentialBytes-20] + "]}",
		"as many users as allowed":  fill("{\"users\":["+strings.Repeat("{},", maxElements/2-2)+"{}]}", " "),
		"as many keys as allowed":   allowed.String(),
		"users in lines":            fill("users:\n", "- {}\n"),
		"lists in lists":            fill("", "["),
		"lists in lists, in blocks": fill("", "- "),
		"the same in UTF-16":        utf16LE.String(),
		"explicit keys":             fill("", "? "),
		"keys":                      distinct.String(),
		"the same key":              fill("", "a:\n"),
		"pairs":                     fill("{", "a: b,"),
		"unusual line breaks":       fill("a:", "\u2028- b"),
		"documents":                 fill("", "---\n"),
		"comments":                  fill("", "#\n"),
		"a long comment":            fill("", "#"),
		"a long word":               fill("a: ", "x"),
		"a long escape":             fill("a: \"", "\\N"),
		"a long number":             fill("a: ", "1"),
		"a long folded text":        fill("a: >\n ", "x \n "),
		"a long indentation":        fill("a:", " "),
		"tags":                      fill("", "!a "),
		"directives":                fill("", "%YAML 1.1\n"),
		"spaces and dashes":         fill("", "-- "),
		"unknown fields":            fill("{", "\"aa\":1,"),
	}
}

func TestParseCredential_no_document_costs_much(t *testing.T) {
	for name, content := range costly() {
		t.Run(name, func(t *testing.T) {
			if len(content) > MaxCredentialBytes {
				t.Fatalf("the document has %d bytes", len(content))
			}
			if accepted, _ := bounded(t, func() (*Credential, *verdict.Refusal) { return Parse([]byte(content), &Rules{}) }); accepted != nil {
				t.Errorf("accepted %v", accepted)
			}
			registration := argoCDRegistration(t, "https://10.0.0.1", content)
			if accepted, _ := bounded(t, func() (*Credential, *verdict.Refusal) { return parseArgoCD(registration, &Rules{}) }); accepted != nil {
				t.Errorf("accepted %v from Argo CD", accepted)
			}
		})
	}
}

func TestParseCredential_takes_many_contexts(t *testing.T) {
	ca, _ := clusterstest.KeyPair(t, time.Now().Add(time.Hour))
	raw := clusterstest.Kubeconfig(t, "https://10.0.0.1:6443", ca, func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		for i := range 200 {
			name := fmt.Sprintf("c-%d", i)
			config.Contexts = append(config.Contexts, clientcmdapi.NamedContext{Name: name, Context: clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "n"}})
			config.Clusters = append(config.Clusters, clientcmdapi.NamedCluster{Name: name, Cluster: clientcmdapi.Cluster{Server: "https://10.0.0.2", CertificateAuthorityData: ca}})
			config.AuthInfos = append(config.AuthInfos, clientcmdapi.NamedAuthInfo{Name: name, AuthInfo: clientcmdapi.AuthInfo{Token: "t"}})
		}
	})
	if _, refused := bounded(t, func() (*Credential, *verdict.Refusal) { return Parse(raw, &Rules{}) }); refused != nil {
		t.Errorf("refused %d bytes with %+v", len(raw), refused)
	}
}

func TestParseCredential_large_keys(t *testing.T) {
	ca, _ := clusterstest.KeyPair(t, time.Now().Add(time.Hour))
	read := func(name string) []byte {
		content, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	client := func(certificate, key []byte) []byte {
		return clusterstest.Kubeconfig(t, "https://10.0.0.1:6443", ca, func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token, u.ClientCertificateData, u.ClientKeyData = "", certificate, key
		})
	}
	tests := map[string][]byte{
		"a client key of 8448 bits": client(read("rsa-8448.crt"), read("rsa-8448.key")),
		"a client key of 150 KiB":   client(ca, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: make([]byte, 100<<10)})),
		"an authority of 16384 bits": clusterstest.Kubeconfig(t, "https://10.0.0.1:6443", append(ca, largeAuthority(t, 16384)...),
			func(*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {}),
	}
	for name, raw := range tests {
		t.Run(name, func(t *testing.T) {
			_, refused := bounded(t, func() (*Credential, *verdict.Refusal) { return Parse(raw, &Rules{}) })
			if refused == nil || refused.Reason != flotillav1.ReasonTooLarge {
				t.Errorf("refused with %+v, want reason %s", refused, flotillav1.ReasonTooLarge)
			}
		})
	}
}

// largeAuthority makes a certificate with an RSA key of so many bits. Nothing signs with it.
func largeAuthority(t *testing.T, bits uint) []byte {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), bits-1)
	modulus.SetBit(modulus, 0, 1)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: modulus, E: 65537}, signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// BenchmarkParseCredential_costly shows that no document of 256 KiB takes longer than 100 ms.
func BenchmarkParseCredential_costly(b *testing.B) {
	for name, content := range costly() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Parse([]byte(content), &Rules{})
			}
		})
	}
}
