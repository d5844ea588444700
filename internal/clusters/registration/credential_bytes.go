// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

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
	// maxElements limits the keys, list items and lines of a document. A decoded element needs several hundred bytes even
	// if it is three bytes long in the document, so a limit on the size alone would not limit memory. A kubeconfig of 200
	// contexts has about 3,500.
	maxElements = 4096
	// maxKeyBits is the largest RSA key that crypto/tls accepts from a peer. A handshake with a larger one needs seconds
	// of CPU and cannot be canceled.
	maxKeyBits = 8192
	// maxKeyBytes is more than the size of a DER-encoded RSA key of maxKeyBits, which is 4.7 KB.
	maxKeyBytes = 8 << 10
)

var (
	errTooManyElements = errors.New("too many elements")
	errNotUTF8         = errors.New("not UTF-8")
	errAlias           = errors.New("anchors and aliases are not allowed")
	errKeyTooLarge     = errors.New("RSA keys may have at most 8,192 bits")
)

// checkStructure limits the cost of decoding content before anything decodes it. Every key and item of YAML, and thus of
// JSON, follows one of the bytes that it counts.
func checkStructure(content []byte) error {
	if !utf8.Valid(content) {
		// A YAML decoder would also accept UTF-16, in which the bytes below have another meaning.
		return errNotUTF8
	}
	elements, indicator := 0, false
	for _, r := range string(content) {
		switch r {
		case '\n', '\r', '\u0085', '\u2028', '\u2029', ',', '{', '[':
			elements++
		case ' ', '\t':
			// List items and explicit keys do not need a line of their own: "- - ? a".
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

// checkAliases refuses anchors and aliases: a kubeconfig needs none, and expanding aliases of a long value would need
// much memory. Nodes keep them as references, so the check itself is cheap.
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

// toJSON converts YAML or JSON within the limits of this file.
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

// keyPairOf parses a client certificate and its key. It checks the size of the key before computing with it.
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

// rootsOf parses certificate authorities. Like AppendCertsFromPEM it skips anything else. It returns nil if there are
// none.
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
