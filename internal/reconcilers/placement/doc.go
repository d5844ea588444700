// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement makes, keeps and removes the copies of hub objects in members.
//
// There are two kinds of passes. A hub pass (a request without a cluster) looks at the hub object alone: it keeps the
// finalizer and status.placedIn, the durable list of members that may have a copy. A copy pass (a request with a
// cluster) looks at one copy, and writes only in a member that placedIn names:
//
//	hub object ──► hub pass ──► placedIn ──► copy passes ──► copies
//	                  ▲                          │
//	                  └──── "gone" (fleet.Table) ┘
//
// A name is added to placedIn before the first write to the member. It is removed only when a live read, or the cache that
// showed the copy until this process deleted it, has shown that the copy is gone, so a crash between any two steps forgets
// nothing. Beside it stand the choice that it follows from, who departs from it, and which copies were made again; roll-up
// writes everything else in status.
//
// A change of a copy's spec needs leave. A copy pass that finds a copy with another spec than the one it should have says
// in fleet.Table that it waits, which brings about a hub pass; that one reads the copies of all clusters, decides by
// fleet.Waves, and says in the Table who may take which spec, which brings about their copy passes:
//
//	copy pass ──► "held" ──► hub pass ──► leave ──► copy pass ──► spec
//	                            ▲                                  │
//	                            └──── readiness, while some wait ──┘
//
// How each copy got its spec is in its annotations, so a restart changes no decision. Making a copy, adopting one, and
// putting back what was changed in a member need no leave.
package placement
