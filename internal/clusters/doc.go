// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusters keeps the connections to member clusters and runs reconcilers over them.
//
//	Secrets ──► registrar ──► member (one actor each) ──► session: link, transport, caches ──► API server
//	              │  who has      │  state machine            one per incarnation; the link below
//	              │  which name   │                           the transport is swapped at a rotation
//	              ▼               ▼
//	        MemberCluster ◄── publisher      Directory (Snapshot, Member) ──► gate, reconcilers, placement
//
// The Pool is a multicluster.Provider. It runs on the leader only. What it promises:
//
//   - A member that is down, slow or hostile changes only what is known about that member. Each member is one goroutine
//     that decides, and jobs that do the I/O; nothing waits while holding a lock, and a panic costs one member its
//     connection.
//   - A credential is refused by its bytes, before anything is executed, read or dialled (credential.go). One that was
//     accepted stays in use until a better one has been proven.
//   - While a member is away its calls fail at once and its watches are parked (transport.go), so that they resume without
//     a list. Whatever ends a watch looks like a connection that broke (watchbody.go), for the same reason.
//   - A cluster is engaged once per incarnation; rotations and outages do not end an incarnation.
//   - Absence is no reason to offboard before every informer of registrations has synced, and offboarding leaves every
//     object in the member.
//   - Nothing ticks: an idle member costs the hub no write, and the member one renewal of the claim per minute (claim.go).
package clusters
