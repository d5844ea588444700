// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "time"

const (
	// warnShare defines StageEndsSoon: the last 1/warnShare of the lifetime of a credential.
	warnShare = 5
	// warnBefore is used instead if the start of the lifetime is unknown.
	warnBefore = 7 * 24 * time.Hour
)

// Stage describes how close a credential is to its expiry.
type Stage int

// The stages of a credential.
const (
	StageValid Stage = iota
	StageEndsSoon
	StageEnded
)

// WarnAt returns when StageEndsSoon begins. The credential must have an expiry.
func (c *Credential) WarnAt() time.Time {
	if c.issued.IsZero() || !c.issued.Before(c.expires) {
		return c.expires.Add(-warnBefore)
	}
	return c.expires.Add(-c.expires.Sub(c.issued) / warnShare)
}

// Stage returns the stage at a time. A credential without expiry is always valid.
func (c *Credential) Stage(now time.Time) Stage {
	switch {
	case c.expires.IsZero() || now.Before(c.WarnAt()):
		return StageValid
	case now.Before(c.expires):
		return StageEndsSoon
	default:
		return StageEnded
	}
}
