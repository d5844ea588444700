// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redis makes, in every member, what a Redis asks for: a StatefulSet whose Pod 0 is the primary, the
// configuration it runs with, the Services that lead to it, and the status that says how it is.
//
// One pass goes observe → plan → apply → report. The plan and the report are pure; everything rendered is a pure
// function of the spec and of what was observed. Nothing here speaks the Redis protocol: roles are fixed by ordinal, and
// the Pods run, restart and replicate the same when no manager is there.
package redis
