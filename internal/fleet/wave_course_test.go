// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// happen has something happen.
func (c *course) happen() {
	m := c.clusters[c.random.IntN(len(c.clusters))]
	lasts := c.random.IntN(60)
	what := c.random.IntN(18)
	if c.waves.Paused && c.random.IntN(2) == 0 {
		what = 16
	}
	if c.nervous && c.random.IntN(2) == 0 {
		what = 3
	}
	switch what {
	case 0, 1:
		m.away = lasts
		c.tell("%s vanishes", m.name)
	case 2:
		m.paused = lasts
		c.tell("%s is paused", m.name)
	case 3:
		if !m.suspect() {
			m.hiccup = lasts / 6
			c.tell("%s has a hiccup", m.name)
		}
	case 4:
		c.restart()
	case 5:
		c.relabel(m)
	case 6, 7:
		c.override(m)
	case 8, 9, 10:
		c.edit(c.newSpec())
	case 11:
		c.edit(c.specs[c.random.IntN(len(c.specs))])
	case 12:
		paused := *c.spec
		paused.idle = !paused.idle
		c.edit(&paused)
	case 13:
		c.promoted = c.edits + 1
		c.tell("a person promotes the change")
	case 14, 15:
		m.full = !m.full
		c.tell("%s has room: %t", m.name, !m.full)
	case 16:
		c.waves.Paused = !c.waves.Paused
		c.tell("the rollout is paused: %t", c.waves.Paused)
	}
}

// restart loses what a process has in memory.
func (c *course) restart() {
	c.permits, c.unsaved = map[string]Permit{}, nil
	if c.without == "the record of a revert" {
		c.change = nil
	}
	for _, m := range c.clusters {
		m.decided = false
	}
	c.tell("the process ends")
}

// relabel makes the labels of a cluster not match any more, or match again.
func (c *course) relabel(m *courseCluster) {
	m.left = !m.left
	c.tell("%s leaves: %t", m.name, m.left)
}

// override edits an override of one cluster. It may end a halt only if that cluster is the one that was broken.
func (c *course) override(m *courseCluster) {
	m.own, c.edits = m.own+1, c.edits+1
	if m.suspect() {
		c.halted = false
	}
	c.tell("%s gets a spec of its own", m.name)
}

// newSpec returns a spec that may break clusters, or cut them off.
func (c *course) newSpec() *courseSpec {
	spec := &courseSpec{name: fmt.Sprint("s", len(c.specs)), breaks: map[string]bool{}, cuts: map[string]bool{}, worsens: map[string]bool{}}
	harm, odds := c.random.IntN(4), 1+c.random.IntN(3)
	for _, m := range c.clusters {
		spec.breaks[m.name] = harm == 1 && c.random.IntN(odds) == 0
		spec.cuts[m.name] = harm == 2 && c.random.IntN(odds) == 0
		spec.worsens[m.name] = harm == 3 && c.random.IntN(3) == 0
	}
	c.specs = append(c.specs, spec)
	return spec
}

func (c *course) edit(spec *courseSpec) {
	c.spec, c.halted = spec, false
	c.edits++
	c.tell("the spec is %q, paused: %t", spec.name, spec.idle)
}

// run plays a course, and then expects a good spec to reach all clusters.
func (c *course) run() {
	steps, pace := 110, 6
	if c.waves.Revert {
		// A change is taken back only if it is let be for longer than the deadline.
		steps, pace = 200, 18
	}
	for range steps {
		if c.random.IntN(pace) == 0 {
			c.happen()
		}
		c.advance()
	}
	c.waves.Paused = false
	for _, m := range c.clusters {
		m.away, m.paused, m.hiccup, m.cut, m.left, m.full = 0, 0, 0, false, false, false
	}
	c.expectBack()
	c.specs = append(c.specs, &courseSpec{name: "the end"})
	c.edit(c.specs[len(c.specs)-1])
	for range 60 * (1 + len(c.clusters)) {
		if c.ended() || c.violation != "" {
			return
		}
		c.advance()
	}
	c.violate("the end is not reached")
}

func (c *course) advance() {
	if c.random.IntN(4) > 0 {
		c.pass()
	}
	c.live()
}

func (c *course) ended() bool {
	return !slices.ContainsFunc(c.clusters, func(m *courseCluster) bool {
		hash, _ := c.want(m)
		return m.copy.Hash != hash
	})
}

// bounds returns the limits of the rollout, unless one of them is switched off.
func (c *course) bounds() Waves {
	waves := c.waves
	waves.Room = func(name string) bool { return !c.find(name).full }
	waves.Reverted = reverted(c.change)
	if c.isPromoted() {
		waves.Soak, waves.Steps, waves.Batch, waves.Order = 0, []int{maxBatch}, maxBatch, nil
	}
	switch c.without {
	case "maxUnready":
		waves.MaxUnready = 1000
	case "the batch":
		waves.Batch = 1000
	case "the steps":
		waves.Steps = nil
	case "the order":
		waves.Order = nil
	case "the soak":
		waves.Soak = 0
	case "the pause":
		waves.Paused = false
	case "the room":
		waves.Room = nil
	case "the end of a promotion":
		if c.promoted > 0 {
			waves.Steps, waves.Batch = []int{maxBatch}, maxBatch
		}
	case "the first cluster alone":
		waves.Steps, waves.Done = nil, 1
	case "the deadline":
		waves.Deadline = 0
	}
	return waves
}

// distort changes what the planner sees as if it lacked a rule, and reports whether it sees the cluster.
func (c *course) distort(turn *Turn, m *courseCluster) bool {
	none := Trial{}
	switch c.without {
	case "trials":
		turn.Trial = none
	case "trials of clusters that cannot be seen":
		if turn.Copy == nil {
			turn.Trial = none
		}
	case "trials across edits":
		if turn.alive() && turn.Copy.Hash == turn.Trial.Hash && turn.Copy.Rollout != c.waves.Template {
			turn.Trial = none
		}
	case "corrections first":
		if turn.alive() && !turn.shown() && turn.Trial.Hash != turn.Want {
			turn.Trial = none
		}
	case "who was ready before":
		if turn.alive() && turn.Trial == none && !turn.Copy.Settled() {
			turn.Trial = Trial{Hash: turn.Copy.Hash, Since: turn.Copy.ChangedAt}
		}
	case "clusters that are not decided":
		turn.Decided = true
	case "clusters that leave":
		return !m.left
	case "that a paused copy proves nothing":
		if turn.Copy != nil {
			turn.Copy.Idle = false
		}
	case "pausing at once":
		turn.Idle = false
	case "going back at once":
		if turn.Copy != nil {
			turn.Copy.PreviousHash = ""
		}
	case "who was not ready comes last":
		if turn.alive() && turn.Trial == none {
			turn.Copy.Ready = isReady
		}
	case "nodes that got worse":
		if turn.Copy != nil {
			turn.Copy.Worse = false
		}
	case "the lag of caches":
		turn.Refused = true
	}
	return true
}

// courses is how many courses are played. The drill plays more.
var courses = uint64(2_000)

func TestWaves_any_course(t *testing.T) {
	t.Parallel()
	// Each part plays some of the courses.
	const parts = 8
	var changes, takenBack atomic.Int64
	t.Run("parts", func(t *testing.T) {
		for part := range uint64(parts) {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for seed := part; seed < courses; seed += parts {
					c := newCourse(seed, "", false)
					c.run()
					if c.violation != "" {
						c = newCourse(seed, "", true)
						c.run()
						t.Fatalf("seed %d, %+v: %s:\n%s", seed, c.waves, c.violation, strings.Join(c.story, "\n"))
					}
					changes.Add(int64(c.changes))
					takenBack.Add(int64(len(c.back.times)))
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d changes in %d courses, and %d of the specs were taken back", changes.Load(), courses, takenBack.Load())
	if changes.Load() < int64(courses)*10 || takenBack.Load() < int64(courses)/20 {
		t.Errorf("%d changes, %d taken back; the courses show little", changes.Load(), takenBack.Load())
	}
}

// TestWaves_do_not_wait_after_an_edit_that_is_taken_back plays a person who edits more quickly than the clusters follow.
// Nothing ever breaks, so nothing has a reason to wait.
func TestWaves_do_not_wait_after_an_edit_that_is_taken_back(t *testing.T) {
	t.Parallel()
	for seed := range courses {
		c := newCourse(seed, "", false)
		c.quick()
		if c.violation != "" {
			c = newCourse(seed, "", true)
			c.quick()
			t.Fatalf("seed %d, %+v: %s:\n%s", seed, c.waves, c.violation, strings.Join(c.story, "\n"))
		}
	}
}

// quick has a person edit, take back and edit again, and expects the last edit to reach all clusters soon.
func (c *course) quick() {
	c.waves.Soak, c.step, c.nervous = 0, 200*time.Millisecond, false
	for _, m := range c.clusters {
		m.sick = false
	}
	for range 5 {
		for range 1 + c.random.IntN(6) {
			if before := len(c.specs) - 2; before >= 0 && c.random.IntN(2) == 0 {
				c.edit(c.specs[before])
			} else {
				c.specs = append(c.specs, &courseSpec{name: fmt.Sprint("s", len(c.specs))})
				c.edit(c.specs[len(c.specs)-1])
			}
			for range c.random.IntN(12) {
				c.advance()
			}
		}
		for began := c.now; !c.ended() && c.violation == ""; c.advance() {
			if c.now.Sub(began) > time.Duration(len(c.clusters))*4*time.Second {
				c.violate("the clusters wait for %v, although nothing is wrong", c.now.Sub(began))
			}
		}
	}
}
