// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pool maintains the connections to member clusters.
//
//	Secrets ──► registrar ──► member (one actor each) ──► session: link, transport, caches ──► API server
//	              │  assigns      │  state machine            one per incarnation; a rotation
//	              │  names        │                           swaps the link below the transport
//	              ▼               ▼
//	        MemberCluster ◄── publisher      Directory (Snapshot, Member) ──► gate, reconcilers, placement
//
// The Pool is a multicluster.Provider. It runs on the leader only and guarantees:
//
//   - A member that is down, slow or hostile affects only what is known about that member. Each member is one goroutine
//     that decides, and jobs that do the I/O. No lock is held while blocking, and a panic costs one member its connection.
//   - An unacceptable credential is refused by its content, before anything is executed, read or dialled (package
//     registration). An accepted credential stays in use until a better one has been verified.
//   - While a member is away, calls fail immediately and watches are parked (package transport), so that they resume
//     without a list. For the same reason, every end of a watch looks like a broken connection.
//   - A cluster is engaged once per incarnation. Rotations and outages do not end an incarnation.
//   - A missing registration does not lead to offboarding before all informers of registrations have synced. Offboarding
//     keeps every object in the member.
//   - An idle member causes no writes to the hub, and one renewal of the claim per minute in the member (package
//     preflight).
package pool
