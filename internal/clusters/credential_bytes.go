// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

const (
	// maxElements bounds the keys, list items and lines of a document. A decoded element takes several hundred bytes even
	// when it takes three in the document, so a bound on bytes alone does not bound memory. A kubeconfig of 200 contexts
	// has about 3,500.
	maxElements = 4096
	// maxKeyBits is what crypto/tls accepts from a peer. A handshake with a larger RSA key takes seconds of CPU and cannot
	// be canceled.
	maxKeyBits = 8192
	// maxKeyBytes is more than the DER encoding of an RSA key of maxKeyBits takes, 4.7 KB.
	maxKeyBytes = 8 << 10
)

var (
	errTooManyElements = errors.New("too many elements")
	errNotUTF8         = errors.New("not UTF-8")
	errAlias           = errors.New("anchors and aliases are not allowed")
	errKeyTooLarge     = errors.New("RSA keys may have at most 8,192 bits")
)

// checkStructure bounds what decoding content can cost, before anything decodes it. Every key and item of YAML, and
// so of JSON, follows one of the bytes that are counted.
func checkStructure(content []byte) error {
	if !utf8.Valid(content) {
		// A YAML decoder would also read UTF-16, where the bytes below mean something else.
		return errNotUTF8
	}
	elements, indicator := 0, false
	for _, r := range string(content) {
		switch r {
		case '\n', '\r', '\u0085', '\u2028', '\u2029', ',', '{', '[':
			elements++
		case ' ', '\t':
			// The item of a list and an explicit key need no line of their own: "- - ? a".
			if indicator {
				elements++
			}
		}
		indicator = r == '-' || r == '?'
		if elements > maxElements {
			return errTooManyElements
		}
	}
	return nil
}

// checkAliases refuses anchors and aliases: a kubeconfig needs none, and each alias of a long value would be written out.
// Nodes keep them as references, so looking costs nothing.
func checkAliases(content []byte) error {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(content, &document); err != nil {
		return fmt.Errorf("reading YAML: %w", err)
	}
	nodes := []*yamlv3.Node{&document}
	for len(nodes) > 0 {
		node := nodes[len(nodes)-1]
		if node.Kind == yamlv3.AliasNode || node.Anchor != "" {
			return errAlias
		}
		nodes = append(nodes[:len(nodes)-1], node.Content...)
	}
	return nil
}

// toJSON converts YAML or JSON within the bounds of this file.
func toJSON(content []byte) ([]byte, error) {
	if err := checkStructure(content); err != nil {
		return nil, err
	}
	if err := checkAliases(content); err != nil {
		return nil, err
	}
	encoded, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("reading YAML: %w", err)
	}
	return encoded, nil
}

// keyPairOf parses a client certificate and its key. The size of the key is checked before any arithmetic with it.
func keyPairOf(certificate, key []byte) (tls.Certificate, error) {
	if block, _ := pem.Decode(key); block != nil && len(block.Bytes) > maxKeyBytes {
		return tls.Certificate{}, errKeyTooLarge
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, errors.New("client certificate and key do not belong together")
	}
	if private, isRSA := pair.PrivateKey.(*rsa.PrivateKey); isRSA && private.N.BitLen() > maxKeyBits {
		return tls.Certificate{}, errKeyTooLarge
	}
	return pair, nil
}

// rootsOf parses certificate authorities. What is no certificate is skipped, as AppendCertsFromPEM does; without any, it
// returns nil.
func rootsOf(authorities []byte) (*x509.CertPool, error) {
	var roots *x509.CertPool
	for {
		var block *pem.Block
		if block, authorities = pem.Decode(authorities); block == nil {
			return roots, nil
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if public, isRSA := certificate.PublicKey.(*rsa.PublicKey); isRSA && public.N.BitLen() > maxKeyBits {
			return nil, errKeyTooLarge
		}
		if roots == nil {
			roots = x509.NewCertPool()
		}
		roots.AddCert(certificate)
	}
}
