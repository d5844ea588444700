// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scale runs placement and roll-up, as the manager sets them up, on a real hub API server with members that exist
// in memory only, so that there may be a thousand of them. The pool is not part of it: a directory says how members are.
package scale
