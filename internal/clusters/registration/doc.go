// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration converts a Secret to a registration: a cluster name, labels, and a credential.
//
// It is pure: nothing is dialed, executed or read from files. A credential is accepted or refused by its bytes, by an
// allow-list of fields and by the Policy of the hub. It is opaque to other packages: they can authenticate with it, but
// cannot reveal a token or a key, and no formatting verb or encoder prints one.
//
// Assign decides which registration gets a cluster name that several request.
package registration
