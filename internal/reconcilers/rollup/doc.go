// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollup writes the state of the members to the hub: the status of hub objects, except for the fields that
// placement writes, and the summary and attention of MemberClusters.
//
// It reads from caches only: that of the hub, and those of visible members. For a member that is not visible it repeats
// the last published entry, and for a member that this process has not decided on yet it changes nothing.
package rollup
