// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config holds the manifests of a member, so that kubectl flotilla applies the very ones that are reviewed.
package config

import "embed"

// Manifests are this folder's admission, crd and member.
//
//go:embed admission crd member
var Manifests embed.FS
