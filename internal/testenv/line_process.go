// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// TellProcesses has the line connect to the server from an address of its own for each process that connects to the line.
// The audit log of an API server then shows which process has sent a request: see ProcessAt. It works on Linux only, for
// processes of this user. A client whose process is not found is hung up on.
func (l *Line) TellProcesses() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tells = true
}

// ProcessAddress is the loopback address from which a line connects for a process.
func ProcessAddress(pid int) netip.Addr {
	address := [4]byte{}
	binary.BigEndian.PutUint32(address[:], 127<<24|1<<16+uint32(pid)) //nolint:gosec // A pid has 22 bits.
	return netip.AddrFrom4(address)
}

// ProcessAt is the process for which a line connects from a loopback address. It returns zero for other addresses.
func ProcessAt(address string) (pid int) {
	parsed, err := netip.ParseAddr(address)
	if err != nil || !parsed.Is4() || !parsed.IsLoopback() {
		return 0
	}
	four := parsed.As4()
	return max(0, int(binary.BigEndian.Uint32(four[:]))-(127<<24|1<<16))
}

// dialerFor returns what connects to the server for a client.
func (l *Line) dialerFor(client net.Conn) (*net.Dialer, error) {
	dialer := &net.Dialer{KeepAlive: -1}
	l.mu.Lock()
	tells := l.tells
	l.mu.Unlock()
	if !tells {
		return dialer, nil
	}
	pid, err := processOf(client)
	if err != nil {
		return nil, err
	}
	dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ProcessAddress(pid), 0))
	return dialer, nil
}

// processOf finds the process on this machine that has the other end of a connection.
func processOf(conn net.Conn) (pid int, err error) {
	inode, err := inodeOf(conn.RemoteAddr(), conn.LocalAddr())
	if err != nil {
		return 0, err
	}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && target == "socket:["+inode+"]" {
			return strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(descriptor))))
		}
	}
	return 0, fmt.Errorf("no process has socket %s", inode)
}

// inodeOf finds the socket of an IPv4 connection by its two ends.
func inodeOf(local, remote net.Addr) (string, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	ends := [2]string{}
	for i, addr := range []net.Addr{local, remote} {
		end, err := netip.ParseAddrPort(addr.String())
		if err != nil {
			return "", err
		}
		four := end.Addr().Unmap().As4()
		// The kernel prints the address as a number in its own byte order.
		ends[i] = fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(four[:]), end.Port())
	}
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) > 9 && string(fields[1]) == ends[0] && string(fields[2]) == ends[1] {
			return string(fields[9]), nil
		}
	}
	return "", fmt.Errorf("no socket leads from %s to %s", local, remote)
}
