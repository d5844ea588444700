// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package events records events about objects of members, in the member and on the hub, where the note starts with the
// name of the cluster.
//
// On the hub, an event regards the hub object if the object of the member is a copy, else the MemberCluster. Budgets per
// object, per member and for the whole hub prevent a member from flooding either; events over budget are counted and
// reported by a single event.
package events
