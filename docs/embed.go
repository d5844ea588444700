// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs holds the page that says what each condition and reason means, for those who print it.
package docs

import _ "embed"

// Conditions is conditions.md.
//
//go:embed conditions.md
var Conditions string
