// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// setDropping makes the kernel drop the packets that a socket receives before TCP sees them, or stops that. Connections
// inherit the filter from the listener that accepts them. A closed connection is not an error.
func setDropping(socket any, dropping bool) error {
	conn, ok := socket.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T has no file descriptor", socket)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if !dropping {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
			return
		}
		// A filter returns how many bytes of the packet to keep: none.
		none := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none[0]})
	})
	if errors.Is(err, net.ErrClosed) || errors.Is(failed, unix.ENOENT) {
		return nil
	}
	return errors.Join(err, failed)
}

// reserve reserves a free port of 127.0.0.1 until the closer is closed. Only sockets with atReserved can listen on it.
// Connections are refused while none does.
func reserve() (addr string, reserved io.Closer, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	socket := os.NewFile(uintptr(fd), "reserved port")
	// Bind before SO_REUSEPORT is set, so that the kernel does not choose a port that another socket shares.
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("binding a port: %w", err), socket.Close())
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.(*unix.SockaddrInet4).Port)), socket, nil
}

// atReserved lets a socket listen on a reserved port.
func atReserved(_, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(err, failed)
}
