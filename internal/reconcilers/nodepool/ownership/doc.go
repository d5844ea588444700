// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownership decides which labels, annotations and taints of nodes belong to which NodePool.
//
// PlanNode computes what all pools of a member together want of one node: what to write, the new record, and what that
// means for each pool. SurveyNodes plans every node as if one pool had all authority and counts the outcomes for its
// status. Both are pure: values in, values out, without a client or a clock. The time and what the controllers remember are
// part of the input. The node controller and the pool controller therefore decide alike.
//
// # Authority
//
// A pool writes a key only if it has its finalizer and lists the key in status.ownedKeys, and its keys are removed only
// if its spec or status.ownedKeys lists them. The record on the node (annotation flotilla.dev/node-record) says what to
// restore. It is a hint: a kubelet can write it. A pool that is not among the views is never a reason to remove a key.
//
// # What others wrote
//
// The value of a key on a node follows from the pools that want it now and from what others wrote, regardless of the
// order of events. The pool with precedence decides. Its value is written if others wrote nothing or the same value, if
// it overrides, or if others wrote over its own value. Otherwise, or if no pool wants the key, what others wrote stays.
//
// What others wrote is their last write, a value or a removal:
//
//   - If no pool has written the key, it is the value on the node.
//   - A write over a pool's value counts, although the pool puts its own back. For that pool it is drift. For all other
//     pools it is a value of others, which Preserve keeps. It is restored when no pool writes the key any more.
//   - A removal of a pool's value counts: the pool puts the value back, and nothing is restored later.
//   - A write of the value that is already there leaves no trace.
//   - Once no pool writes the key, it no longer matters which pool's value others replaced.
//   - What a pool leaves on the node, by deletionPolicy Orphan or because its record is gone, counts as written by others.
//
// The record therefore keeps, for each key that a pool holds, the value written and what others wrote. Taints with
// propagation OnInitialization are the exception: they depend on when a node joined, and the record lists those that are
// still owed.
package ownership
