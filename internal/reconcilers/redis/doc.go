// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redis reconciles each Redis in every member: a StatefulSet whose Pod 0 is the primary, its configuration, the
// Services that lead to it, and the status.
//
// Each pass has four steps: observe, plan, apply, report. Plan and report are pure, and everything rendered is a pure
// function of the spec and of what was observed. The package does not speak the Redis protocol: roles are fixed by
// ordinal, and the Pods run, restart and replicate in the same way without a manager.
package redis
