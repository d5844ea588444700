// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config is what people install, as kustomizations. Its tests try what `make generate` renders of it into dist.
package config
