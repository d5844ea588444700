// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config contains the kustomizations of everything that users install. It embeds the manifests of a member, so that
// kubectl flotilla applies exactly what is reviewed here. Its tests cover what `make generate` renders into dist.
package config

import "embed"

// Manifests contains the folders admission, crd and member.
//
//go:embed admission crd member
var Manifests embed.FS
