// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin is `kubectl flotilla`: one file for each command, and these that they share: tool.go (flags, clients),
// member.go (ways into a member), console.go (stages, tables, colours), manifests.go (what a member gets), token.go
// (credentials of the hub in a member).
//
// The plugin keeps nothing between calls and decides nothing that the manager decides: it writes what a person could write
// with kubectl, reads what a person could read, and says what that means.
package plugin
