// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testenv

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// setDropping is not possible here.
func setDropping(_ any, dropping bool) error {
	if dropping {
		return errors.New("packets can be dropped on Linux only")
	}
	return nil
}

// reserve finds a free port of 127.0.0.1. It is not kept here: while a line refuses, something else may take it.
func reserve() (addr string, reserved io.Closer, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return listener.Addr().String(), listener, listener.Close()
}

// atReserved does nothing here.
func atReserved(string, string, syscall.RawConn) error { return nil }
