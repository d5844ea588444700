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
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// token is the bearer token that servers accept by default.
const token = "the-token-of-a-fake-member"

// Fault describes how a server misbehaves. A server with the zero Fault behaves correctly.
type Fault struct {
	// Answer handles each request instead of the server. It may delegate to well, which answers correctly.
	Answer func(w http.ResponseWriter, req *http.Request, well http.Handler)
	// Accept wraps each new connection before the TLS handshake.
	Accept func(net.Conn) net.Conn
	// Certificate is presented instead of the trusted one.
	Certificate *tls.Certificate
	// Refuse closes the listener, so that connections are refused.
	Refuse bool
}

// Server is a fake API server of a member. It stores objects in memory, and serves gets, lists, watches and writes.
type Server struct {
	store    *store
	http     *http.Server
	address  string
	requests atomic.Int64
	fault    atomic.Pointer[Fault]
	version  atomic.Value
	tokens   atomic.Pointer[[]string]
	clock    clock.WithTicker

	mu       sync.Mutex // Guards the fields below.
	listener net.Listener
	conns    map[net.Conn]struct{}
}

// Start starts a server with the objects that the pool requires and the given ones. It is stopped at the end of the test.
func Start(t testing.TB, objects ...client.Object) *Server {
	t.Helper()
	s := &Server{store: newStore(), clock: clock.RealClock{}, conns: map[net.Conn]struct{}{}}
	s.version.Store("v1.36.0")
	s.Accept(token)
	s.fault.Store(&Fault{})
	crds, err := sharedCRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		s.store.objects[key{kindOf(crd), client.ObjectKeyFromObject(crd)}] = crd
	}
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, object := range objects {
		s.Put(object)
	}
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate},
	}
	if err := s.listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.http.Close()
		s.Cut()
	})
	return s
}

// listen starts to accept connections at address.
func (s *Server) listen(address string) error {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.listener, s.address = inner, inner.Addr().String()
	s.mu.Unlock()
	go func() { _ = s.http.ServeTLS(&listener{Listener: inner, server: s}, "", "") }()
	return nil
}

// Misbehave replaces the fault of the server. The zero Fault ends it. Open connections are closed, so that the change
// takes effect immediately, unless keep is true.
func (s *Server) Misbehave(t testing.TB, fault Fault, keep ...bool) {
	t.Helper()
	before := s.fault.Swap(&fault)
	s.mu.Lock()
	current := s.listener
	s.mu.Unlock()
	switch {
	case fault.Refuse && !before.Refuse:
		_ = current.Close()
	case !fault.Refuse && before.Refuse:
		if err := s.listen(s.address); err != nil {
			t.Fatal(err)
		}
	}
	if len(keep) == 0 || !keep[0] {
		s.Cut()
	}
}

// Cut closes all connections.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// Accept replaces the tokens that the server accepts. By default it accepts that of Kubeconfig.
func (s *Server) Accept(tokens ...string) { s.tokens.Store(&tokens) }

// Kubeconfig returns a kubeconfig for the server with the default token.
func (s *Server) Kubeconfig() []byte { return s.KubeconfigWith(token) }

// KubeconfigWith returns a kubeconfig for the server with the given token.
func (s *Server) KubeconfigWith(token string) []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters["fake"] = &clientcmdapi.Cluster{Server: s.URL(), CertificateAuthorityData: right().authority}
	config.AuthInfos["fake"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["fake"] = &clientcmdapi.Context{Cluster: "fake", AuthInfo: "fake"}
	config.CurrentContext = "fake"
	raw, err := clientcmd.Write(*config)
	utilruntime.Must(err)
	return raw
}

// URL returns the URL of the server.
func (s *Server) URL() string { return "https://" + s.address }

// Requests returns the number of requests received so far.
func (s *Server) Requests() int64 { return s.requests.Load() }

// Version sets the version that the server reports.
func (s *Server) Version(version string) { s.version.Store(version) }

// Identify sets the UID of the namespace kube-system, which identifies a cluster.
func (s *Server) Identify(uid types.UID) {
	s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}})
}

// serve answers a request, by the fault if there is one.
func (s *Server) serve(w http.ResponseWriter, req *http.Request) {
	s.requests.Add(1)
	if answer := s.fault.Load().Answer; answer != nil {
		answer(w, req, http.HandlerFunc(s.answer))
		return
	}
	s.answer(w, req)
}

// certificate implements tls.Config.GetCertificate.
func (s *Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if wrong := s.fault.Load().Certificate; wrong != nil {
		return wrong, nil
	}
	return &right().Certificate, nil
}

// listener records open connections, so that Cut can close them.
type listener struct {
	net.Listener
	server *Server
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if accept := l.server.fault.Load().Accept; accept != nil {
		inner = accept(inner)
	}
	c := &conn{Conn: inner, server: l.server}
	l.server.mu.Lock()
	l.server.conns[c] = struct{}{}
	l.server.mu.Unlock()
	return c, nil
}

// conn removes itself from the record when it is closed.
type conn struct {
	net.Conn
	server *Server
}

// Close implements net.Conn.
func (c *conn) Close() error {
	// Cut closes connections with the lock held.
	go func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		delete(c.server.conns, c)
	}()
	return c.Conn.Close()
}

// certificate is a self-signed certificate for the loopback address.
type certificate struct {
	tls.Certificate
	authority []byte
}

// right is the certificate of all servers. It is shared because creating one takes milliseconds. wrong is trusted by no
// kubeconfig.
var right, wrong = sync.OnceValue(newCertificate), sync.OnceValue(newCertificate)

// newCertificate creates a certificate with a key of its own.
func newCertificate() *certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	utilruntime.Must(err)
	now := clock.RealClock{}.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "fake member " + string(uuid.NewUUID())},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	utilruntime.Must(err)
	return &certificate{
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		authority:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}
}

// sharedCRDs returns our CustomResourceDefinitions as established. All servers share the objects.
var sharedCRDs = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds, err := testenv.CRDs()
	for _, crd := range crds {
		crd.UID, crd.ResourceVersion, crd.CreationTimestamp = uuid.NewUUID(), "1", metav1.NewTime(clock.RealClock{}.Now()).Rfc3339Copy()
		crd.SetGroupVersionKind(kindOf(crd).gvk)
		crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
		for _, met := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
			crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
				Type: met, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: crd.CreationTimestamp,
			})
		}
	}
	return crds, err
})
