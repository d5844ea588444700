// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Turn is the state of a cluster in a rollout.
type Turn struct {
	Name string
	// Labels are those of the member.
	Labels map[string]string
	// Want is the hash of the effective spec for the cluster. It is empty if there is none, or if the cluster is on trial
	// and no longer chosen.
	Want string
	// Kept reports whether the change of the hub object was taken back and Want is what the cluster had before.
	Kept bool
	// Idle reports whether the reconcilers of the member only observe a copy with that spec. Such a copy takes the spec at
	// once, because nothing follows from it.
	Idle bool
	// Absent reports whether the cluster is visible and has no copy, and creating one is a change.
	Absent bool
	// Copy is nil if the cluster has no copy or is not visible.
	Copy *Copy
	// Trial is the recorded trial of the cluster.
	Trial Trial
	// Sight is whether the copy shows a spec that is on trial and not wanted any more. Its permit has been revoked.
	Sight Sight
	// Refused reports whether the member has refused to store the spec that is on trial.
	Refused bool
	// Decided is as in Member. Writable reports whether the cluster can take the spec now.
	Decided, Writable bool
	// PermittedAt is when the cluster was permitted to change, or zero. It matters only to a cluster that is not on trial
	// and has not taken the change.
	PermittedAt time.Time
}

// TurnOf returns the turn of an observed cluster, and whether it takes part in the rollout. A cluster that refuses the
// change, for which there is no valid spec, or that is leaving does not: it is unchanged and does not affect the others.
// If it is on trial, however, the others have to know.
func TurnOf(o Observation, generation int64) (Turn, bool) {
	turn := Turn{Name: o.Name, Copy: o.Copy, Trial: o.Trial, Decided: true}
	if o.Member != nil {
		turn.Decided, turn.Labels = o.Member.Decided, o.Member.Labels
	}
	refused := o.Outcome.Reason != "" && o.Outcome.Generation == generation && !o.Outcome.Held
	refused = refused && (o.Copy == nil || o.Copy.Hash != o.Want.Hash)
	if o.Fate == FateApply && o.Member != nil && o.WantError == nil && !refused {
		turn.Want, turn.Idle, turn.Kept, turn.Writable = o.Want.Hash, o.Want.Idle(), o.Kept, o.Member.Writable
		turn.Absent = o.Copy == nil && o.Visible() && o.Want.Evicts()
		return turn, true
	}
	// A member that stores something else has stored the copy.
	turn.Refused = refused && o.Outcome.Reason != flotillav1.ReasonFieldDropped
	return turn, o.Fate != FateRemove && o.Trial != (Trial{})
}

// alive reports whether the copy can be seen and is not being deleted.
func (t Turn) alive() bool { return t.Copy != nil && !t.Copy.Deleting }

// shown reports whether the copy has the desired spec.
func (t Turn) shown() bool { return t.Copy.Hash == t.Want }

// outdated reports whether the cluster lacks the desired spec, and takes whether it also can take it.
func (t Turn) outdated() bool { return t.Absent || t.alive() && !t.shown() }
func (t Turn) takes() bool    { return t.Writable && t.outdated() }

// Open reports whether the cluster may still have to take the change, or is on trial. The other clusters only matter
// through whether some of them are done and whether some are undecided.
func (t Turn) Open(template string) bool {
	if !t.alive() {
		return t.Absent || t.Trial != (Trial{})
	}
	if t.Kept {
		return true
	}
	return t.Trial != (Trial{}) || !t.shown() || t.Copy.Rollout == template && !t.Copy.Settled()
}

// Done reports whether the cluster took the change and is ready.
func (t Turn) Done(template string) bool {
	return t.alive() && t.shown() && t.Copy.Rollout == template && t.Copy.Settled()
}

// Doubtful reports whether the cluster may have taken a spec that its copy does not show.
func (t Turn) Doubtful() bool {
	return t.Trial != (Trial{}) && t.Sight != SightClear && (!t.alive() || t.Copy.Hash != t.Trial.Hash)
}

// StandIns returns turns that represent the undecided ones among those that are not open: Next decides the same with them
// and with the number of those that are done.
func StandIns(undecided bool) []Turn {
	if undecided {
		return []Turn{{}}
	}
	return nil
}
