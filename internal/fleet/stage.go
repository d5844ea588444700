// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// stage is the progress of a cluster with a change.
type stage int

const (
	// apart means that the cluster takes no part: the change does not affect it, or it is not visible or not writable.
	apart stage = iota
	// broken, ready and unready mean that the cluster waits for its turn. It is on trial with another spec; or it is ready;
	// or it was not ready before.
	broken
	ready
	unready
	// moving means that the cluster is on trial with the desired spec, and its time is not over; failed that it is over.
	moving
	failed
	// recovering and lost mean the same for a cluster that is on trial with another spec, and that either needs no trial for
	// the desired one or cannot take it.
	recovering
	lost
	// slow means that the cluster was not ready before, may have taken the change, and its time is not over.
	slow
	done
	// returning means that the cluster is not on trial, and gets a spec back with which it was ready, or one that is paused.
	returning
	// late means that the cluster was permitted to change and has not changed in time. Nothing has failed there, so other
	// clusters do not wait for it.
	late
)

// missedTrial returns the trial of a cluster for which none is recorded, or none. A copy that was changed by a version that
// did not record trials is on trial with the present change until it is ready. A cluster that left the placement during its
// trial and came back is on trial again until its copy has soaked.
func (w Waves) missedTrial(turn Turn, now time.Time) Trial {
	seen := turn.Copy
	switch {
	case !turn.alive() || !turn.shown():
		return Trial{}
	case seen.Rollout == w.Template && !seen.Recorded && seen.PreviousHash != "" && !seen.Settled():
		return Trial{Hash: seen.Hash, Since: seen.ChangedAt}
	case seen.Tried && now.Sub(seen.ChangedAt) < w.Soak:
		return Trial{Hash: seen.Hash, Since: seen.ChangedAt.UTC()}
	}
	return Trial{}
}

// trial returns the trial of the cluster, or none if the cluster has been seen ready since.
func (w Waves) trial(turn Turn, now time.Time) Trial {
	seen := turn.Copy
	switch {
	case turn.Trial == (Trial{}):
		return w.missedTrial(turn, now)
	case turn.Trial.Hash == passedOver:
		if turn.Copy == nil && !turn.Absent || turn.takes() && turn.fit() && !turn.returns() {
			return turn.Trial
		}
		return Trial{}
	case !turn.Absent && (!turn.alive() || !seen.well()):
		return turn.Trial
	case turn.alive() && turn.shown() && seen.Hash == turn.Trial.Hash && w.soaks(seen, now) > 0:
		return turn.Trial
	case turn.alive() && turn.shown() && turn.Trial.Hash == "" && seen.Tried && w.soaks(seen, now) > 0:
		// It had taken the change when its permit was withdrawn.
		return Trial{Hash: seen.Hash, Since: seen.ChangedAt.UTC()}
	case turn.Sight == SightSoon && now.Sub(turn.Trial.Since) < w.Deadline:
		return turn.Trial
	case turn.Refused, turn.Sight == SightClear, turn.alive() && seen.Hash == turn.Trial.Hash:
		return Trial{}
	case turn.alive() && turn.Trial.Hash != turn.Want && seen.ChangedAt.After(turn.Trial.Since):
		// It has taken another spec since, and is ready with that.
		return Trial{}
	case turn.Trial.Hash == "" && now.Sub(turn.Trial.Since) < cacheLag:
		return turn.Trial
	case turn.Trial.Hash == "" && turn.takes() && !turn.returns():
		return Trial{Hash: passedOver, Since: now}
	case turn.Trial.Hash == "":
		return Trial{}
	case turn.Trial.Hash == turn.Want && now.Sub(turn.Trial.Since) < w.Deadline, turn.Trial.Hash != turn.Want && turn.takes():
		return turn.Trial
	}
	// The permit is withdrawn: it is no longer wanted, or has not been used in time. It may have been used a moment ago.
	return Trial{Since: now}
}

// stage returns the stage of a cluster, and the remaining time of one that is waited for.
func (w Waves) stage(turn Turn, now time.Time) (stage, time.Duration) {
	seen := turn.Copy
	switch {
	case turn.Trial != (Trial{}):
		return w.onTrial(turn, now)
	case turn.Absent && turn.Writable:
		return ready, 0
	case !turn.alive():
		return apart, 0
	case !turn.shown():
		return w.before(turn, now)
	case seen.Rollout != w.Template:
		return apart, 0
	case seen.Settled():
		return done, 0
	}
	if rest := seen.ChangedAt.Add(w.Deadline + seen.Pace).Sub(now); rest > 0 {
		return slow, rest
	}
	return apart, 0
}

// onTrial returns the stage of a cluster that is on trial.
func (w Waves) onTrial(turn Turn, now time.Time) (stage, time.Duration) {
	seen, wanted := turn.Copy, turn.Trial.Hash == turn.Want && turn.Want != ""
	if turn.Trial.Hash == passedOver {
		if turn.takes() {
			return ready, 0
		}
		return apart, 0
	}
	since, deadline := turn.Trial.Since, w.Deadline
	if turn.alive() && seen.Hash == turn.Trial.Hash {
		deadline += seen.Pace
		if seen.ChangedAt.After(since) {
			since = seen.ChangedAt
		}
	}
	rest := since.Add(deadline).Sub(now)
	switch {
	case turn.takes() && !wanted && !turn.returns() && (turn.Trial.Hash != "" || turn.alive() && !seen.well()):
		return broken, 0
	case wanted && turn.alive() && turn.shown() && seen.well():
		return moving, w.soaks(seen, now)
	case wanted && rest > 0:
		return moving, rest
	case wanted:
		return failed, 0
	case rest <= 0:
		return lost, 0
	case turn.Trial.Hash == "":
		return recovering, since.Add(min(w.Deadline, cacheLag)).Sub(now)
	}
	return recovering, rest
}

// soaks returns for how long a copy that is ready has to stay so.
func (w Waves) soaks(seen *Copy, now time.Time) time.Duration {
	if w.Soak == 0 {
		return 0
	}
	since := seen.ChangedAt
	if seen.Ready.LastTransitionTime.After(since) {
		since = seen.Ready.LastTransitionTime.Time
	}
	return since.Add(w.Soak).Sub(now)
}

// before returns the stage of a cluster that is not on trial and whose copy does not have the change yet.
func (w Waves) before(turn Turn, now time.Time) (stage, time.Duration) {
	switch {
	case turn.returns():
		return returning, 0
	case !turn.Writable:
		return apart, 0
	case turn.fit():
		return ready, 0
	case turn.PermittedAt.IsZero():
		return unready, 0
	}
	if rest := turn.PermittedAt.Add(w.Deadline).Sub(now); rest > 0 {
		return slow, rest
	}
	return late, 0
}

// returns reports whether the copy takes the spec without a trial: it was ready with this spec before, or nothing follows
// from it.
func (t Turn) returns() bool {
	return t.Copy != nil && (t.Idle || t.Want != "" && t.Copy.PreviousHash == t.Want)
}

// fit reports whether a change could break the cluster: its copy is ready or only waits to be resumed, or it has none.
func (t Turn) fit() bool {
	return t.Absent || t.alive() && (t.Copy.HeldBack || t.Copy.Ready != nil && t.Copy.Ready.Status == metav1.ConditionTrue)
}

// Due reports whether a permit covers the cluster as it is now: one that has become ready since has to go on trial first.
func (t Turn) Due() bool { return t.Trial.Hash == t.Want || t.returns() || !t.fit() }

// Settled reports whether the member has fully reconciled the copy.
func (c *Copy) Settled() bool {
	return c.Ready != nil && c.Ready.Status == metav1.ConditionTrue && !c.Progressing && c.ObservedGeneration >= c.Generation
}

// well reports whether the copy shows that its spec does no harm: it is settled, and no more nodes are unready than before
// the change. An idle copy shows nothing.
func (c *Copy) well() bool { return c.Settled() && !c.Worse && !c.Idle }

// heldBack reports whether the only reason why a copy is not ready is that its spec is paused or a dry run.
func heldBack(ready *metav1.Condition) bool {
	return ready != nil && ready.Status != metav1.ConditionTrue &&
		(ready.Reason == flotillav1.ReasonPaused || ready.Reason == flotillav1.ReasonDryRun)
}
