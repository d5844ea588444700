// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd holds the CustomResourceDefinitions that members need, as `make generate` wrote them.
package crd

import _ "embed"

// The definitions of the kinds that members serve, in YAML.
var (
	//go:embed bases/flotilla.dev_redises.yaml
	Redises []byte
	//go:embed bases/flotilla.dev_nodepools.yaml
	NodePools []byte
)
