// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// Line is a TCP proxy to a real server that fails in the ways in which networks fail. It listens on an address of its own on
// loopback and forwards bytes without interpreting them, so TLS is end to end: the certificate of the server must be valid
// for 127.0.0.1.
//
//	              new connections         open connections
//	as made       forwarded               forwarded
//	Refuse        refused at once         closed
//	Cut           forwarded               closed, once
//	Hush          accepted, no answer     acknowledged, no answer
//	Drop          no answer at all        no acknowledgement, no reset, no answer
//
// Refuse, Hush and Drop replace each other and last until Restore. Open connections survive Hush and Drop: bytes sent in the
// meantime arrive afterwards, when TCP retransmits them.
type Line struct {
	server string
	addr   string

	// reserved holds the port, even while nothing listens on it.
	reserved io.Closer

	mu       sync.Mutex // Guards the fields below; nothing waits while holding it.
	listener net.Listener
	closed   bool
	dropping bool
	tells    bool
	flows    chan struct{} // Closed while bytes flow.
	conns    map[net.Conn]bool
}

// NewLine listens on loopback and forwards to host:port until the test ends. The server may be started later.
func NewLine(t testing.TB, server string) *Line {
	t.Helper()
	l := &Line{server: server, flows: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.flows)
	var err error
	if l.addr, l.reserved, err = reserve(); err != nil {
		t.Fatalf("reserving a port for a line to %s: %v", server, err)
	}
	t.Cleanup(l.Close)
	if err := l.listen(); err != nil {
		t.Fatalf("making a line to %s: %v", server, err)
	}
	return l
}

// Addr returns the host:port of the line, which never changes.
func (l *Line) Addr() string { return l.addr }

// Through returns the kubeconfig with the server of its current cluster replaced by the line.
func (l *Line) Through(t testing.TB, kubeconfig []byte) []byte {
	t.Helper()
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		t.Fatalf("reading a kubeconfig: %v", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		t.Fatalf("the kubeconfig has no cluster in its current context %q", config.CurrentContext)
	}
	server, err := url.Parse(config.Clusters[current.Cluster].Server)
	if err != nil {
		t.Fatalf("reading a kubeconfig: %v", err)
	}
	server.Host = l.addr
	config.Clusters[current.Cluster].Server = server.String()
	raw, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatalf("writing a kubeconfig: %v", err)
	}
	return raw
}

// Refuse closes all connections and refuses new ones, as if the process of the server were dead.
func (l *Line) Refuse() {
	l.mu.Lock()
	listener := l.listener
	l.listener = nil
	l.mu.Unlock()
	if listener != nil {
		_ = listener.Close()
	}
	l.Cut()
}

// Cut closes all open connections, as if a load balancer were restarted.
func (l *Line) Cut() {
	l.mu.Lock()
	conns := l.conns
	l.conns = map[net.Conn]bool{}
	l.mu.Unlock()
	for conn := range conns {
		_ = conn.Close()
	}
}

// Hush accepts and acknowledges everything and delivers nothing, as if the process of the server hung.
func (l *Line) Hush(t testing.TB) {
	t.Helper()
	l.Restore(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flows = make(chan struct{})
}

// Drop makes the kernel drop every packet to the line, like a firewall or a dead link: nothing is acknowledged, refused or
// reset. It requires Linux but no privileges.
func (l *Line) Drop(t testing.TB) {
	t.Helper()
	l.Hush(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropping = true
	l.filterLocked(t)
}

// Restore ends Refuse, Hush and Drop.
func (l *Line) Restore(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	refusing := l.listener == nil
	select {
	case <-l.flows:
	default:
		close(l.flows)
	}
	if l.dropping {
		l.dropping = false
		l.filterLocked(t)
	}
	l.mu.Unlock()
	if !refusing {
		return
	}
	if err := l.listen(); err != nil {
		t.Errorf("listening again on the line to %s: %v", l.server, err)
	}
}

// Close closes the line. It is called when the test ends.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	select {
	case <-l.flows:
	default:
		close(l.flows)
	}
	l.mu.Unlock()
	l.Refuse()
	_ = l.reserved.Close()
}

// listen listens on the address of the line and forwards its connections.
func (l *Line) listen() error {
	// Without keep-alives: they would reset connections on which everything is dropped, and a black hole resets nothing.
	config := net.ListenConfig{KeepAlive: -1, Control: atReserved}
	// Sockets of Multipath TCP, which is the default where the kernel supports it, accept no filter.
	config.SetMultipathTCP(false)
	listener, err := config.Listen(context.Background(), "tcp", l.addr)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.listener = listener
	l.mu.Unlock()
	go l.serve(listener)
	return nil
}

// serve accepts connections until the listener is closed.
func (l *Line) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go l.forward(client)
	}
}

// forward connects a client to the server. It closes the connection if the server cannot be dialed.
func (l *Line) forward(client net.Conn) {
	if !l.keep(client) {
		return
	}
	var server net.Conn
	dialer, err := l.dialerFor(client)
	if err == nil {
		server, err = dialer.Dial("tcp", l.server)
	}
	if err != nil {
		<-l.gate()
		l.forget(client)
		return
	}
	if !l.keep(server) {
		l.forget(client)
		return
	}
	go l.pipe(client, server)
	l.pipe(server, client)
}

// keep registers an open connection and applies the state of the line, which may have changed since it was accepted. It
// closes the connection and returns false if the line refuses connections.
func (l *Line) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil || l.closed || setDropping(conn, l.dropping && isAccepted(conn, l.addr)) != nil {
		_ = conn.Close()
		return false
	}
	l.conns[conn] = true
	return true
}

// isAccepted reports whether a connection was accepted by the line rather than dialed.
func isAccepted(conn net.Conn, addr string) bool { return conn.LocalAddr().String() == addr }

// forget closes a connection.
func (l *Line) forget(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// pipe copies bytes, and forwards the end of the connection, while the gate is closed.
func (l *Line) pipe(to, from net.Conn) {
	defer l.forget(to)
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

// gate is closed when bytes may flow.
func (l *Line) gate() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flows
}

// filterLocked starts or stops dropping packets to the line in the kernel. The caller must hold mu.
func (l *Line) filterLocked(t testing.TB) {
	t.Helper()
	sockets := map[any]bool{l.listener: true}
	for conn := range l.conns {
		if isAccepted(conn, l.addr) {
			sockets[conn] = true
		}
	}
	for socket := range sockets {
		if err := setDropping(socket, l.dropping); err != nil {
			t.Errorf("dropping packets: %v", fmt.Errorf("line to %s: %w", l.server, err))
		}
	}
}

// FreeAddress returns a host:port on which nothing listens, for a process that cannot report the port that it chose. The host
// is a loopback address that nothing else uses, so that nobody takes the port before the process listens. On systems without
// such addresses it is 127.0.0.1, and the port may be taken.
func FreeAddress(t testing.TB) string {
	t.Helper()
	own := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	listener, err := net.Listen("tcp", own)
	if err != nil {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
