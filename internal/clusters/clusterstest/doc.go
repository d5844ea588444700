// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterstest is API servers of members that misbehave in ways that real ones cannot be made to.
//
// A Server behaves well until it is given a Fault: it keeps objects in memory and serves over TLS and HTTP/2 what the pool
// asks of a member, in JSON or protobuf. It admits, defaults and validates nothing and knows no rights, so it is no
// replacement for a real API server where that would do. An idle one costs a listener and its goroutine, so that there may
// be a thousand in a process.
package clusterstest
