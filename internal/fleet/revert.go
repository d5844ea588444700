// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// maxFailedSpecs is the number of specs that a record of a revert lists at most, the limit of the schema.
const maxFailedSpecs = 100

// reverted reports whether a change is taken back now.
func reverted(change *flotillav1.Change) bool {
	return change != nil && change.Revert != nil && !change.Revert.Retried
}

// RevertedChange returns the change of a hub object that is taken back, or nil if there is none. What it says stays true
// until a pass of placement has recorded something else, so that all passes of all processes agree on it.
func RevertedChange(object flotillav1.Placeable) *flotillav1.Change {
	change := object.GetFleetStatus().Change
	if !reverted(change) || object.GetDeletionTimestamp() != nil || object.GetPlacement() == nil {
		return nil
	}
	return change
}

// Tookback is what a cluster should have while a change is taken back.
type Tookback struct {
	// Want is the spec that it should have. Only its hash is known, unless it is that of the hub object.
	Want Effective
	// Kept reports whether this is not the spec of the hub object, but one that the cluster had before.
	Kept bool
}

// TakeBack returns what a cluster should have while a change is taken back. effective is its spec by the hub object.
//
// The clusters that took the change get the spec back with which they were ready before, as their copies record it. All
// others keep what they have, so that a revert reaches no cluster that the change has not reached. A spec from which
// nothing follows is not held up.
func TakeBack(change *flotillav1.Change, effective Effective, seen *Copy) Tookback {
	switch {
	case effective.Idle():
		return Tookback{Want: effective}
	case seen == nil:
		return Tookback{Kept: true}
	case seen.took(change):
		return Tookback{Want: Effective{Hash: seen.PreviousHash}, Kept: true}
	case seen.Hash == effective.Hash:
		// It had this spec before the change began, or was ready with it before.
		return Tookback{Want: effective}
	}
	return Tookback{Want: Effective{Hash: seen.Hash}, Kept: true}
}

// took reports whether the copy was ready when it took a change, and has not got back what it had before. What it took
// before the change began does not count: a late cluster that fails with a spec says nothing about those that have had it
// for long.
func (c *Copy) took(change *flotillav1.Change) bool {
	return c.Tried && c.PreviousHash != "" && c.Rollout == change.Rollout && !c.ChangedAt.Before(change.Since.Time)
}

// Standing returns what becomes of the record of a change when a pass begins, before anything is decided. wanted are the
// hashes of what the chosen clusters should have by the hub object.
//
// A change that was taken back stays so until the spec is edited such that no cluster would get what failed, or a person
// has it tried again. It is then not taken back a second time, so that a tool that applies the same spec for ever, or a
// promotion that stays, leads to no loop.
func Standing(change *flotillav1.Change, template string, promotion Promotion, wanted func(hash string) bool) *flotillav1.Change {
	switch {
	case !reverted(change):
		return change
	case promotion != PromotionNone:
		retried := change.DeepCopy()
		retried.Rollout, retried.Revert.Retried = template, true
		return retried
	case change.Rollout == template, slices.ContainsFunc(change.Revert.SpecHashes, wanted):
		return change
	}
	return nil
}

// Follow returns the record of the change after a decision, if nothing is taken back by it.
func (w Waves) Follow(change *flotillav1.Change, wave Wave, turns []Turn, now time.Time) *flotillav1.Change {
	begins := slices.ContainsFunc(turns, func(turn Turn) bool {
		trial := wave.Trials[turn.Name]
		return turn.Want != "" && !turn.Kept && trial.Hash == turn.Want && trial != turn.Trial
	})
	switch {
	case reverted(change), wave.Undecided:
	case begins && (change == nil || change.Rollout != w.Template):
		return &flotillav1.Change{Rollout: w.Template, Since: metav1.NewMicroTime(now.UTC().Truncate(time.Microsecond))}
	case change != nil && wave.Progress() == nil:
		return nil
	}
	return change
}

// Reverts reports whether a decision is to take the change back: more clusters than allowed have failed with it. One that
// is seen without the change has not failed with it, and a cluster that failed with an earlier spec says nothing about this
// one. While a person pauses the rollout, nothing is taken back either.
func (w Waves) Reverts(change *flotillav1.Change, wave Wave) bool {
	return w.Revert && !w.Paused && !wave.Undecided && change != nil && change.Rollout == w.Template && change.Revert == nil &&
		len(wave.Harmed) > w.MaxUnready
}

// NewRevert returns the record of a change that is taken back now. The clusters that failed are among the turns, and new
// copies get the spec of a revision.
func NewRevert(change *flotillav1.Change, wave Wave, turns []Turn, revision string, now time.Time) *flotillav1.Change {
	var failed, hashes []string
	for _, turn := range turns {
		if _, harmed := slices.BinarySearch(wave.Harmed, turn.Name); harmed {
			failed, hashes = append(failed, failureOf(turn)), append(hashes, turn.Trial.Hash)
		}
	}
	slices.Sort(failed)
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	taken := change.DeepCopy()
	taken.Revert = &flotillav1.Revert{
		Since: metav1.NewMicroTime(now.UTC().Truncate(time.Microsecond)), Revision: revision, SpecHashes: hashes[:min(len(hashes), maxFailedSpecs)],
		Message: sanitize.Clip("Not ready in time: " + text.Names(failed)),
	}
	return taken
}

// failureOf names a cluster that failed, with the reason.
func failureOf(turn Turn) string {
	switch {
	case turn.Copy == nil:
		return turn.Name + " (cannot be observed)"
	case turn.Copy.Worse:
		return turn.Name + " (" + flotillav1.ReasonNodesNotReady + ")"
	case turn.Copy.Ready != nil && turn.Copy.Ready.Reason != "" && turn.Copy.Ready.Status != metav1.ConditionTrue:
		return turn.Name + " (" + sanitize.Reason(turn.Copy.Ready.Reason) + ")"
	}
	return turn.Name
}

// SameChange reports whether two records are equal.
func SameChange(a, b *flotillav1.Change) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Rollout == b.Rollout && a.Since.Equal(&b.Since) && sameRevert(a.Revert, b.Revert)
}

func sameRevert(a, b *flotillav1.Revert) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Retried == b.Retried && a.Since.Equal(&b.Since) && a.Revision == b.Revision && a.Message == b.Message &&
		slices.Equal(a.SpecHashes, b.SpecHashes)
}

// Kept are the specs that the kept revisions of a hub object define.
type Kept []KeptSpecs

// KeptSpecs are the specs that one revision defines.
type KeptSpecs struct {
	// Revision is its name, and Number its number.
	Revision string
	Number   int64
	Specs    *Specs
}

// Named returns the specs of a revision, or nil.
func (k Kept) Named(revision string) *KeptSpecs {
	i := slices.IndexFunc(k, func(kept KeptSpecs) bool { return kept.Revision == revision })
	if i < 0 {
		return nil
	}
	return &k[i]
}

// Find returns the newest of the specs that define the effective spec with that hash for a member, or nil.
func (k Kept) Find(hash, name string, memberLabels map[string]string) *KeptSpecs {
	i := slices.IndexFunc(k, func(kept KeptSpecs) bool {
		effective, err := kept.Specs.For(name, memberLabels)
		return err == nil && effective.Hash == hash
	})
	if i < 0 {
		return nil
	}
	return &k[i]
}

// Before returns the newest of the specs, other than those of the given revision, with which the clusters that failed with
// a change get back what they had, or nil. Those that cannot be seen do not tell.
func (k Kept) Before(change *flotillav1.Change, present string, wave Wave, turns []Turn) *KeptSpecs {
	i := slices.IndexFunc(k, func(kept KeptSpecs) bool {
		return kept.Revision != present && !slices.ContainsFunc(turns, func(turn Turn) bool {
			_, harmed := slices.BinarySearch(wave.Harmed, turn.Name)
			if !harmed || !turn.alive() || !turn.Copy.took(change) {
				return false
			}
			effective, err := kept.Specs.For(turn.Name, turn.Labels)
			return err != nil || effective.Hash != turn.Copy.PreviousHash
		})
	})
	if i < 0 {
		return nil
	}
	return &k[i]
}

// String describes a revision for a message.
func (k *KeptSpecs) String() string { return fmt.Sprint("revision ", k.Number) }
