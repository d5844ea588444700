// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// face shows a real API server as another cluster: everything goes through to it, and only who it is differs. A pool
// takes an API server once, so that many members on few API servers need faces.
type face struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy
	uid    atomic.Value

	mu sync.Mutex
	// lease is the claim on the face, as its holder encoded it; faces of one API server have a claim each. Under mu.
	lease []byte
}

// newFace starts a face of an API server.
func newFace(t testing.TB, of *testenv.Cluster, uid types.UID) *face {
	t.Helper()
	target, err := url.Parse(of.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	through, err := rest.TransportFor(of.Config)
	if err != nil {
		t.Fatal(err)
	}
	f := &face{}
	f.uid.Store(uid)
	f.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		Transport:     through,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	f.server = clusterstest.TLSServer(t, f)
	return f
}

// ServeHTTP implements http.Handler.
func (f *face) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case strings.HasPrefix(req.URL.Path, path.Dir(claimPath)):
		f.serveClaim(w, req)
		return
	case req.URL.Path != "/api/v1/namespaces/"+metav1.NamespaceSystem:
		f.proxy.ServeHTTP(w, req)
		return
	}
	namespace := metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: f.uid.Load().(types.UID), ResourceVersion: "1"},
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(namespace)
}

// serveClaim keeps the claim as it comes.
func (f *face) serveClaim(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch req.Method {
	case http.MethodPost, http.MethodPut:
		f.lease, _ = io.ReadAll(req.Body)
	case http.MethodDelete:
		f.lease = nil
	}
	contentType := req.Header.Get("Content-Type")
	if req.Method == http.MethodGet {
		contentType, _, _ = strings.Cut(req.Header.Get("Accept"), ",")
	}
	if f.lease == nil {
		w.Header().Set("Content-Type", "application/json")
		if req.Method != http.MethodDelete {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(f.lease)
}

// kubeconfig leads to the face, which authenticates nobody.
func (f *face) kubeconfig(t testing.TB) []byte {
	t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
	return clusterstest.Kubeconfig(t, f.server.URL, authority, nil)
}

// hostOf returns host:port of a URL.
func hostOf(t *testing.T, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
