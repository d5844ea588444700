// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodepool reconciles NodePools in members.
//
// Two controllers share the work. The node controller (NodeReconciler, key: a node) computes what all pools of the
// member together want of one node and sends at most one patch: labels, annotations, taints and the record of what
// was written. The pool controller (PoolReconciler, key: a pool) writes status, the RuntimeClass and the finalizer,
// and never a node.
//
// The pool controller gives authority before the node controller uses it: a key is written only when the pool has its
// finalizer and lists the key in status.ownedKeys, and keys of a deleted pool are removed only when its status says
// Cleaning. So whatever is on a node can be taken off again, whenever the manager dies.
//
// The record on the node (annotation flotilla.dev/node-record) is a hint for restoring, because a kubelet can write it.
// What may be removed is decided by the pool. A pool that is not in the cache is never a reason to remove anything.
//
// # What others wrote
//
// The value of a key on a node follows from the pools that want it now and from what others wrote, in whatever order
// that came about. The pool that comes first decides: its value stands where others wrote nothing or the same, where it
// overrides, or where others wrote over its own value. Else, and where no pool wants the key, what others wrote stands.
//
// What others wrote is their last write, a value or a removal:
//
//   - Where no value stands for a pool, it is what is there.
//   - A write over a pool's value counts although the pool puts its own back. To that pool it is drift; to every other
//     pool it is a value of others, which Preserve keeps. It comes back when no pool takes the key any more.
//   - A removal of a pool's value counts: the pool puts it back, and nothing comes back later.
//   - A write of the very value that stands leaves no trace.
//   - Once no value stands for a pool, it no longer matters over which pool's value others wrote.
//   - What a pool leaves behind, by deletionPolicy Orphan or because its record is gone, is what others wrote.
//
// So the record keeps, for each key that stands for a pool, that value and what others wrote. Taints with propagation
// OnInitialization are the exception: they depend on when a node joined, and the record says which are still owed.
//
// Both controllers decide with planNode, which is pure: the node controller applies its plan, the pool controller
// counts it. A node is up to date when the plan for it is empty.
package nodepool
