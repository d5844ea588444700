// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin is `kubectl flotilla`. Each command has a file of its name. They share root.go (flags and arguments),
// objects.go and conditions.go (what is read of hub objects), manifests.go (what a member gets), token.go and
// registration.go (the credential of the hub in a member). Package console is the user interface, and package site reaches clusters.
//
// The plugin keeps no state between calls and makes no decision that the manager makes: it reads and writes what the user
// could read and write with kubectl, and explains the result.
package plugin
