// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package testenv

import "errors"

// setDropping is not possible here.
func setDropping(_ any, dropping bool) error {
	if dropping {
		return errors.New("packets can be dropped on Linux only")
	}
	return nil
}
