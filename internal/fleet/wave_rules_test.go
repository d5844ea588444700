// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"testing"
)

// rules are the rules of the planner. Without any of them something goes wrong in some course.
var rules = []string{
	"trials", "trials of clusters that cannot be seen", "trials across edits", "the record before the permit", "corrections first",
	"who was ready before", "that a previous spec was good", "that a paused copy proves nothing", "pausing at once",
	"going back at once", "clusters that are not decided", "clusters that leave", "the lag of caches", "maxUnready", "the batch",
	"the first cluster alone", "the deadline", "the look before the change", "nodes that got worse", "who was not ready comes last",
	"the steps", "the order", "the soak", "the pause", "the room", "the end of a promotion",
	"the record of a revert", "that a change is taken back once", "that a change stays taken back", "that it stays so after an edit for others",
	"when a change began", "that others keep what they have", "who failed with something else", "a promotion before the revert",
}

func TestWaves_need_each_of_their_rules(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			for seed := range 5 * courses {
				c := newCourse(seed, rule, false)
				if c.run(); c.violation != "" {
					t.Logf("seed %d: %s", seed, c.violation)
					return
				}
			}
			t.Error("nothing goes wrong without it either")
		})
	}
}

// check looks for a broken rule in a decision.
func (c *course) check(turns []Turn, wave Wave) {
	suspects, correctable, fresh := []string(nil), "", map[string]bool{}
	for _, m := range c.clusters {
		if !m.suspect() {
			continue
		}
		suspects = append(suspects, m.name)
		if c.now.Sub(m.tookAt) < courseDeadline-courseStep {
			fresh[m.name] = true
		}
		i := slices.IndexFunc(turns, func(t Turn) bool { return t.Name == m.name })
		if i >= 0 && turns[i].Writable && turns[i].alive() && !turns[i].shown() && !slices.Contains(wave.Go, m.name) {
			correctable = m.name
		}
	}
	undecided := slices.ContainsFunc(c.clusters, func(m *courseCluster) bool { return !m.decided && !m.left })
	let, done := 0, 0
	for _, turn := range turns {
		if turn.Done(c.waves.Template) && wave.Trials[turn.Name] == (Trial{}) {
			done++
		}
		if !turn.alive() || turn.shown() || !turn.Writable {
			continue
		}
		goes := slices.Contains(wave.Go, turn.Name)
		if _, idle := c.want(c.find(turn.Name)); (idle || turn.Want != "" && c.find(turn.Name).cached.PreviousHash == turn.Want) && !goes {
			c.violate("%s is held, although it needs no trial", turn.Name)
		}
		if !goes || turn.returns() || !turn.PermittedAt.IsZero() || c.trials[turn.Name].Hash == turn.Want {
			continue
		}
		let++
		if c.trials[turn.Name] != (Trial{}) {
			continue
		}
		switch {
		case len(suspects) > c.waves.MaxUnready:
			c.violate("%s may change although %v are not known to be well", turn.Name, suspects)
		case correctable != "":
			c.violate("%s may change before %s, which was broken", turn.Name, correctable)
		case len(fresh) > 0:
			c.violate("%s may change although others have just begun: %v", turn.Name, fresh)
		case undecided:
			c.violate("%s may change although not all clusters have been looked at", turn.Name)
		case c.halted:
			c.violate("%s may change although the rollout was halted", turn.Name)
		case c.waves.Paused:
			c.violate("%s may change although the rollout is paused", turn.Name)
		case c.find(turn.Name).full:
			c.violate("%s may change although it has no room", turn.Name)
		case c.soaking(turn.Name) != "":
			c.violate("%s may change although %s has not been ready for long enough", turn.Name, c.soaking(turn.Name))
		}
	}
	c.checkOrder(turns, wave)
	if limit := c.limit(done); let > limit && !c.isPromoted() {
		c.violate("%d clusters may change at once after %d, not only %d", let, done, limit)
	}
}

// checkOrder looks for clusters that change before others whose turn it is.
func (c *course) checkOrder(turns []Turn, wave Wave) {
	var waiting, going []Turn
	for _, turn := range turns {
		m := c.find(turn.Name)
		if !turn.takes() || turn.Kept || turn.returns() || c.trials[turn.Name] != (Trial{}) || m.full || !turn.PermittedAt.IsZero() {
			continue
		}
		seen := m.cached.Ready.Status == isReady.Status
		if _, goes := find(wave.Go, turn.Name); goes {
			going = append(going, turn)
		} else if seen {
			waiting = append(waiting, turn)
		}
	}
	for _, turn := range going {
		for _, other := range waiting {
			ordered := c.waves.Order != nil && !c.isPromoted()
			switch {
			case c.find(turn.Name).cached.Ready.Status != isReady.Status:
				c.violate("%s, which is not ready, may change before %s", turn.Name, other.Name)
			case ordered && c.waves.group(other) < c.waves.group(turn):
				c.violate("%s may change before %s, which is of an earlier group", turn.Name, other.Name)
			}
		}
	}
}

// soaking returns another cluster that took the change and has not been ready with it for long enough.
func (c *course) soaking(name string) string {
	if c.isPromoted() {
		return ""
	}
	for _, m := range c.clusters {
		hash, _ := c.want(m)
		if m.name == name || !m.visible() || m.left || m.cached.Hash != hash || m.cached.Rollout != c.waves.Template || !m.cached.Tried {
			continue
		}
		if c.now.Sub(m.cached.ChangedAt) < c.waves.Soak {
			return m.name
		}
	}
	return ""
}
