// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller runs reconcilers over all members.
//
//	informers of members ──► sources ──► fair queue ──► gate ──► reconciler
//	changes on the hub   ──►
//
// The queue serves members in turn, so that a busy one does not delay the others. The gate drops requests of members that
// cannot be worked with; a source queues all keys of a member when it can be again. Requests are (cluster, object); those
// of the hub have no cluster.
package controller
