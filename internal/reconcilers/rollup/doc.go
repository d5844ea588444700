// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollup says on the hub how things are in the members. It writes the status of hub objects, status.placedIn
// excepted, and the summary and attention of MemberClusters.
//
// It reads caches only: that of the hub, and those of members that can be seen. About a member that cannot be seen it
// repeats what it published last, and about one that this process has not found out about yet it changes nothing.
package rollup
