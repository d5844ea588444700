// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// takenBack is what a course knows about changes that were taken back, whatever is recorded.
type takenBack struct {
	// now is true in the pass that takes a change back.
	now bool
	// rollout is the change that is taken back, since and until when it may have been taken, and hashes are the specs that failed.
	rollout string
	since   time.Time
	hashes  []string
	// times counts how often each change was taken back.
	times map[string]int
	// promoted is the promotion that there was when a change was taken back.
	promoted int
}

// find returns where a name is in a sorted list.
func find(names []string, name string) (int, bool) { return slices.BinarySearch(names, name) }

// named returns the spec of a hash.
func (c *course) named(hash string) *courseSpec {
	name, _, _ := strings.Cut(strings.TrimSuffix(hash, " paused"), "+")
	return c.specs[slices.IndexFunc(c.specs, func(spec *courseSpec) bool { return spec.name == name })]
}

// target returns what a cluster should have, and whether that is what it had before a change that is taken back.
func (c *course) target(m *courseCluster, seen *Copy) (Effective, bool) {
	hash, idle := c.want(m)
	want := Effective{Hash: hash, Spec: specOf[idle]}
	if !reverted(c.change) {
		return want, false
	}
	change := c.change
	if c.without == "when a change began" {
		change = change.DeepCopy()
		change.Since.Time = time.Time{}
	}
	back := TakeBack(change, want, seen)
	if c.without == "that others keep what they have" && seen != nil && !seen.took(change) {
		return want, false
	}
	return back.Want, back.Kept
}

// wanted reports whether a cluster should have a spec by the hub object.
func (c *course) wanted(hash string) bool {
	return slices.ContainsFunc(c.clusters, func(m *courseCluster) bool {
		want, _ := c.want(m)
		return !m.left && want == hash
	})
}

// stand brings the record of the change up to date, as a pass of placement does when it begins.
func (c *course) stand() {
	c.back.now = false
	promotion := PromotionNone
	if c.isPromoted() {
		promotion = PromotionFull
	}
	before, wanted := c.change, c.wanted
	switch c.without {
	case "that a change stays taken back":
		if reverted(before) && len(c.trials) == 0 {
			before = nil
		}
	case "that it stays so after an edit for others":
		wanted = func(string) bool { return false }
	}
	c.change = Standing(before, c.waves.Template, promotion, wanted)
	if reverted(before) && !reverted(c.change) && c.change != nil && c.promoted == c.back.promoted {
		c.violate("%s is tried again, although nobody has asked for it", c.change.Rollout)
	}
	edited := c.back.rollout != c.waves.Template && !slices.ContainsFunc(c.back.hashes, c.wanted)
	again := c.isPromoted() && c.promoted != c.back.promoted
	if c.back.rollout != "" && (edited || again) {
		c.tell("what was taken back may go on: edited %t, promoted %t", edited, again)
		c.back.rollout, c.halted = "", false
	}
}

// follow records the change after a decision.
func (c *course) follow(waves Waves, wave Wave, turns []Turn) {
	if c.without == "that a change is taken back once" && c.change != nil && c.change.Revert != nil && c.change.Revert.Retried {
		c.change.Revert = nil
	}
	judged := wave
	if c.without == "who failed with something else" {
		judged.Harmed = wave.Failed
	}
	if !waves.Reverts(c.change, judged) {
		c.change = waves.Follow(c.change, wave, turns, c.now)
		return
	}
	c.back.now = true
	if c.isPromoted() && c.without != "a promotion before the revert" {
		c.promoted = 0
		c.tell("the promotion is removed")
		return
	}
	c.change = NewRevert(c.change, judged, turns, "before", c.now)
	c.tell("%s is taken back: %s", c.change.Rollout, c.change.Revert.Message)
	harmed := 0
	for _, m := range c.clusters {
		want, _ := c.want(m)
		if m.suspect() && m.took == want || !m.visible() && c.trials[m.name].Hash == want {
			harmed++
		}
	}
	if harmed <= c.waves.MaxUnready {
		c.violate("the change is taken back, although only %d clusters took it and are not well", harmed)
	}
	c.back.promoted = c.promoted
	c.back.rollout, c.back.since, c.back.hashes = c.change.Rollout, c.change.Since.Time, c.change.Revert.SpecHashes
	if c.back.times == nil {
		c.back.times = map[string]int{}
	}
	if c.back.times[c.change.Rollout]++; c.back.times[c.change.Rollout] > 1 {
		c.violate("%s is taken back again", c.change.Rollout)
	}
}

// checkTake looks for a cluster that takes what it must not while a change is taken back.
func (c *course) checkTake(m *courseCluster, hash string, idle bool) {
	if c.back.rollout == "" || idle {
		return
	}
	change := &flotillav1.Change{Rollout: c.back.rollout}
	change.Since.Time = c.back.since
	switch {
	case !m.cached.took(change):
		c.violate("%s takes %q, although %s is taken back and it has not taken that", m.name, hash, c.back.rollout)
	case hash != m.cached.PreviousHash:
		c.violate("%s takes %q, although it had %q before %s", m.name, hash, m.cached.PreviousHash, c.back.rollout)
	}
}

// expectBack expects that the clusters have back what they had before a change that is taken back.
func (c *course) expectBack() {
	if !reverted(c.change) {
		return
	}
	for range 40 {
		c.advance()
	}
	for _, m := range c.clusters {
		want, _ := c.want(m)
		if m.cut {
			// What it took meanwhile has cut it off.
			m.cut = false
			continue
		}
		if reverted(c.change) && !c.spec.idle && m.copy.took(c.change) && want != m.copy.PreviousHash {
			c.violate("%s still has %q, which is taken back", m.name, m.copy.Hash)
		}
	}
}
