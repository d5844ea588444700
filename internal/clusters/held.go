// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"time"
)

// HeldError is returned for a write to a member that must not be written now. Nothing was sent.
type HeldError struct {
	// Reason is ReasonFrozen, ReasonPaused, or the reason why the hub does not hold the claim.
	Reason string
}

// Error implements error.
func (e *HeldError) Error() string { return "nothing is written to the member now: " + e.Reason }

// ErrNotLeading is returned for a write to a member when this process may not be the leader any more. Nothing was sent.
// The write may be tried again: either the process becomes sure, or it exits.
var ErrNotLeading = errors.New("nothing is written to the member: this process may not be the leader any more")

// Permission is the right to do something, which expires. The zero Permission permits nothing.
type Permission struct {
	// Began is when the renewal that gave it began; Length is how long it lasts from then on.
	Began  time.Time
	Length time.Duration
}

// Left returns how long the permission lasts, zero if it has ended. It goes by the monotonic or by the wall clock, whichever
// is ahead: the former stands still while a machine is suspended, the latter may be set back.
func (p Permission) Left(now time.Time) time.Duration {
	elapsed := max(now.Sub(p.Began), now.Round(0).Sub(p.Began.Round(0)))
	return max(p.Length-elapsed, 0)
}
