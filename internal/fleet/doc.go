// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet decides, without reading or writing anything, which members get a copy of a hub object, what each copy
// should be, and what the copies together say about the fleet.
//
// Placement and roll-up ask the same questions of it, so that what is written to the members and what is said about
// them on the hub cannot disagree:
//
//	Choose    which members the placement chooses
//	Specs     what each of them should have
//	FateOf    what becomes of the copy in a member that has one
//	EntryOf   what is known about it
//	Report    what that adds up to
//
// Table carries the outcome of placement's passes to roll-up. It is the only thing here that changes.
package fleet
