// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is what people install, as kustomizations. It holds the manifests of a member, so that kubectl flotilla
// applies the very ones that are reviewed. Its tests try what `make generate` renders of it into dist.
package config

import "embed"

// Manifests are this folder's admission, crd and member.
//
//go:embed admission crd member
var Manifests embed.FS
