// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redis reconciles each Redis in every member: a StatefulSet, its configuration, the Services that lead to the
// primary, and the status. In mode Replication, Pod 0 is the primary. In mode Sentinel, the Pods decide which one is.
//
// Each pass has four steps: observe, plan, apply, report. Plan and report are pure, and everything rendered is a pure
// function of the spec and of what was observed. The package does not speak the Redis protocol: roles are fixed by
// ordinal, or decided by the Pods, which run, restart, replicate and fail over in the same way without a manager.
package redis
