// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transport provides the HTTP transport to a member, shared by its caches and its clients.
//
// A Link holds the connections of one credential. A Transport lives as long as one incarnation of the member; a rotation
// of the credential swaps the link below it. While the member is away, the Transport acts as a circuit breaker: calls
// fail immediately, and watches are parked so that they resume without a list. It enforces Limits on what the member
// sends, closes silent watches, and detects a member that was restored to an earlier state.
package transport
