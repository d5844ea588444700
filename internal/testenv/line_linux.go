// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// setDropping has the kernel drop what arrives at a socket before TCP sees it, or ends that. A connection inherits this
// from the listener that it was made at. A connection that was closed meanwhile is no error.
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
