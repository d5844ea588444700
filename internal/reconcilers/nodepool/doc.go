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
// Both controllers decide with planNode, which is pure: the node controller applies its plan, the pool controller
// counts it. A node is up to date when the plan for it is empty.
package nodepool
