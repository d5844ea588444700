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

// Line is a TCP connection to a real server that can fail in the ways in which networks fail. It forwards bytes from an
// address of its own on loopback and knows nothing of what they mean, so TLS goes through from end to end; the server's
// certificate must be valid for 127.0.0.1.
//
//	              new connections         open connections
//	as made       forwarded               forwarded
//	Refuse        refused at once         closed
//	Cut           forwarded               closed, once
//	Hush          accepted, no answer     acknowledged, no answer
//	Drop          no answer at all        no acknowledgement, no reset, no answer
//
// Refuse, Hush and Drop last until Restore, and replace each other. Open connections survive Hush and Drop: what was sent
// meanwhile arrives afterwards, as late as TCP sends it again.
type Line struct {
	server string
	addr   string

	// reserved keeps the port for the line, also while nothing listens at it.
	reserved io.Closer

	mu       sync.Mutex // Guards the fields below; nothing waits while holding it.
	listener net.Listener
	closed   bool
	dropping bool
	flows    chan struct{} // Closed while bytes flow.
	conns    map[net.Conn]bool
}

// NewLine listens on loopback and forwards to host:port until the test ends. The server need not be there yet.
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

// Addr is the line's own host:port. It stays the same through everything that happens to the line.
func (l *Line) Addr() string { return l.addr }

// Through returns the kubeconfig with its current cluster's server replaced by the line.
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

// Refuse closes all connections and has new ones refused, as when the server's process is dead.
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

// Cut closes all open connections, as when something on the way is restarted.
func (l *Line) Cut() {
	l.mu.Lock()
	conns := l.conns
	l.conns = map[net.Conn]bool{}
	l.mu.Unlock()
	for conn := range conns {
		_ = conn.Close()
	}
}

// Hush has the line accept and acknowledge everything and deliver nothing, as when the server's process hangs.
func (l *Line) Hush(t testing.TB) {
	t.Helper()
	l.Restore(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flows = make(chan struct{})
}

// Drop has the kernel drop every packet on its way to the line, as when a firewall or a dead link swallows them: nothing
// is acknowledged, refused or reset. It works on Linux only and needs no privilege.
func (l *Line) Drop(t testing.TB) {
	t.Helper()
	l.Hush(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropping = true
	l.filterLocked(t)
}

// Restore ends what Refuse, Hush and Drop began.
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

// Close ends the line. Tests need not call it.
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

// listen opens the line's address and forwards what comes.
func (l *Line) listen() error {
	// No keep-alives: on connections that drop everything they would end in a reset, and a black hole sends none.
	config := net.ListenConfig{KeepAlive: -1, Control: atReserved}
	// Sockets of Multipath TCP, which are the default where the kernel has it, take no filter.
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

// forward connects a client with the server. A client is hung up on when the server is not there.
func (l *Line) forward(client net.Conn) {
	if !l.keep(client) {
		return
	}
	dialer := net.Dialer{KeepAlive: -1}
	server, err := dialer.Dial("tcp", l.server)
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

// keep notes an open connection and puts it in the state of the line, which may have changed since it was accepted. It
// closes the connection and returns false when the line takes none now.
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

// isAccepted says whether a connection was made to the line rather than by it.
func isAccepted(conn net.Conn, addr string) bool { return conn.LocalAddr().String() == addr }

// forget closes a connection.
func (l *Line) forget(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
}

// pipe copies bytes while they flow. The end of a connection is passed on only then, too.
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

// filterLocked has the kernel drop, or not drop any more, what comes to the line; mu is held.
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

// FreeAddress returns a host:port at which nothing listens, for a process that cannot report a port of its own choice. The
// host is a loopback address that nothing else uses, so that the port cannot be taken before the process listens. Where
// there are no such addresses, it is 127.0.0.1, and the port can be taken.
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
