// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodepool reconciles NodePools in members.
//
// Two controllers share the work. The node controller (NodeReconciler, key: a node) computes what all pools of the
// member together want of one node and sends at most one patch: labels, annotations, taints and the record of what
// was written. The pool controller (PoolReconciler, key: a pool) writes status, the RuntimeClass and the finalizer,
// and never a node.
//
// The pool controller grants authority before the node controller uses it: a key is written only when the pool has its
// finalizer and lists the key in status.ownedKeys, and keys of a deleted pool are removed only when its status says
// Cleaning. Everything on a node can therefore be removed again, whenever the manager stops.
//
// Both controllers decide with package ownership, which is pure: the node controller applies the plan for a node, and the
// pool controller counts the plans for all nodes. A node is up to date when the plan for it is empty. What the controllers
// remember between passes is in the Ledger. All of it may be lost; that only delays work.
package nodepool
