// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet contains the rules of placement and roll-up: which members get a copy of a hub object, the desired spec
// of each copy, which of them may change, and the status entry of each. It performs no I/O.
//
// Placement and roll-up call the same functions, so that the copies in the members and the status on the hub are
// always consistent:
//
//	Choose      returns the members that a placement chooses
//	Specs       computes the effective spec for each member
//	FateOf      decides whether a copy is applied, kept or removed
//	Waves       decides which members may take a change, by the evidence of copies and Trials
//	EntryOf     returns the status entry of one member
//
// Package conditions adds the entries up, and package sanitize limits what members report.
//
// All of them are pure, except for three types that keep state and are safe for concurrent use:
//
//	Table      the outcomes of placement's passes, which roll-up reads, and the permits to take a change
//	Removals   the removals of the last 10 minutes
//	SpecCache  the Specs of hub objects, by generation
//
// None of them is the only record of anything: they are empty after a start, and are filled again from the API objects.
package fleet
