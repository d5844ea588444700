// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet holds the fleet suite: the manager as a process, a real hub, and real members with simulated nodes.
package fleet
