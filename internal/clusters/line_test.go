// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"net"
	"net/url"
	"sync"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// line is a TCP connection to a server that can be cut or go silent, for members that are real apart from that.
type line struct {
	listener net.Listener
	server   string

	mu     sync.Mutex
	silent chan struct{} // Closed when bytes flow.
	conns  map[net.Conn]struct{}
}

// newLine listens on loopback and forwards to host:port.
func newLine(t *testing.T, server string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, server: server, silent: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(l.silent)
	go l.serve()
	t.Cleanup(func() {
		_ = listener.Close()
		l.speak()
		l.cut()
	})
	return l
}

func (l *line) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns[client], l.conns[server] = struct{}{}, struct{}{}
		l.mu.Unlock()
		go l.pipe(client, server)
		go l.pipe(server, client)
	}
}

func (l *line) pipe(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		<-l.gate()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *line) gate() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// hush makes the line silent: connections stay open and deliver nothing.
func (l *line) hush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = make(chan struct{})
}

// speak ends the silence.
func (l *line) speak() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.silent:
	default:
		close(l.silent)
	}
}

// cut closes all connections.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.Close()
		delete(l.conns, conn)
	}
}

// through returns a kubeconfig that leads through the line.
func (l *line) through(t *testing.T, kubeconfig []byte) []byte {
	t.Helper()
	config := clientcmdapi.Config{}
	if err := yaml.Unmarshal(kubeconfig, &config); err != nil {
		t.Fatal(err)
	}
	config.Clusters[0].Cluster.Server = "https://" + l.listener.Addr().String()
	raw, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return raw
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
