// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement creates, updates and removes the copies of hub objects in members.
//
// There are two kinds of passes. A hub pass (a request without a cluster) processes the hub object alone: it maintains
// the finalizer and status.placedIn, the durable list of members that may have a copy. A copy pass (a request with a
// cluster) processes one copy, and writes only to a member that placedIn lists:
//
//	hub object ──► hub pass ──► placedIn ──► copy passes ──► copies
//	                  ▲                          │
//	                  └──── "gone" (fleet.Table) ┘
//
// A name is added to placedIn before the first write to the member. It is removed only after a live read, or the cache
// that contained the copy until this process deleted it, has shown that the copy is gone. A crash between any two steps
// therefore loses nothing. The status also records the choice that placedIn follows from, the departures from it, the
// copies that were created again, and the clusters on trial. Roll-up writes all other fields of the status.
//
// A change of a copy's spec needs a permit. A copy pass that finds a copy with an outdated spec reports in fleet.Table
// that it waits. This triggers a hub pass, which reads the copies of all clusters, decides by fleet.Waves, and records
// the clusters that go on trial in status.trials. The pass that sees this record grants permits in the Table. A permit
// triggers the copy pass of its cluster:
//
//	copy pass ──► "held" ──► hub pass ──► trials ──► hub pass ──► permit ──► copy pass ──► spec
//	                            ▲                                                           │
//	                            └──────── readiness, while some wait or are on trial ───────┘
//
// The annotations of each copy record how it got its spec, and the trials who may have got one, so a restart changes no
// decision. Creating a copy that does not evict Pods, adopting an object, and reverting drift need no permit; nor does a
// spec that is paused.
package placement
