// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	courseStep     = 15 * time.Second
	courseDeadline = 5 * time.Minute
)

// courseSpec is a spec of the hub object.
type courseSpec struct {
	name string
	// breaks and cuts are the clusters that do not become ready with it, and that cannot be reached any more. It worsens the
	// nodes of others, which are ready all the same.
	breaks, cuts, worsens map[string]bool
	idle                  bool
}

// courseCluster is a member with a copy, as it is and as the manager sees it.
type courseCluster struct {
	name string
	// copy is the copy, cached is what the cache of the member shows, and lag how long it may be behind.
	copy, cached Copy
	lag          int
	// spec is what the copy runs with: an idle copy keeps running with the spec before.
	spec *courseSpec
	// away and paused are how many steps the member cannot be seen, or not be written to. A member that is cut off stays
	// away. hiccup is for how many steps the copy is not ready for reasons of its own, and sick that it never is.
	away, paused, hiccup int
	cut, sick            bool
	// decided reports whether this process has seen the member, own the revision of its own override, and left whether its
	// labels no longer match.
	decided bool
	own     int
	left    bool
	// takes is how many steps the member needs to observe a change.
	takes int
	// stage is the value of the label by which clusters are ordered, and full whether other objects use up its room.
	stage string
	full  bool
	// wellSince is when it became ready with what it took.
	wellSince time.Time

	// took is the hash that it took when it was ready and has not been seen ready with, and tookAt when it was permitted.
	took   string
	tookAt time.Time
}

// course plays the life of a hub object and of its copies: a person edits it, clusters break, vanish and return, labels
// change, members are paused, caches lag, and the process ends at any point.
type course struct {
	random   *rand.Rand
	now      time.Time
	waves    Waves
	clusters []*courseCluster
	spec     *courseSpec
	specs    []*courseSpec
	edits    int
	// trials are recorded on the hub object; permits are in memory.
	trials  Trials
	permits map[string]Permit
	// promoted is one more than the number of edits that there were when a person promoted the change.
	promoted int
	// change is recorded on the hub object, and back is what the model knows about what was taken back.
	change *flotillav1.Change
	back   takenBack
	// halted reports whether the rollout was halted, and nothing has happened since that may end it.
	halted bool
	// without is the rule that is switched off.
	without string
	// unsaved are trials that are not recorded yet, without the rule that they are recorded first.
	unsaved   Trials
	violation string
	// step is how long a step lasts.
	step time.Duration
	// nervous is true if clusters often have hiccups.
	nervous bool
	// tells is true if the story is recorded.
	tells   bool
	story   []string
	changes int
}

func newCourse(seed uint64, without string, tells bool) *course {
	c := &course{
		random: rand.New(rand.NewPCG(seed, 3)), now: waveTime, trials: Trials{}, permits: map[string]Permit{}, without: without, tells: tells,
		step: courseStep,
	}
	c.waves = Waves{Batch: 1 + c.random.IntN(3), MaxUnready: max(c.random.IntN(4)-1, 0), Deadline: courseDeadline}
	if seed%5 == 0 {
		c.waves.Steps = []int{2, 1}
	}
	if seed%3 == 0 {
		c.waves.Soak = 2 * time.Minute
	}
	c.nervous = seed%4 == 0
	c.waves.Revert = seed%7 < 3
	if seed%11 < 3 {
		c.waves.Order = &flotillav1.RolloutOrder{Label: "stage", Values: []string{"first", "second"}}
	}
	c.spec = &courseSpec{name: "s0"}
	c.specs = []*courseSpec{c.spec}
	for i := range 1 + c.random.IntN(7) {
		cluster := &courseCluster{name: fmt.Sprint("m", i), spec: c.spec, decided: true, sick: c.random.IntN(12) == 0}
		cluster.copy = Copy{Recorded: true, Version: "1", Generation: 1, ObservedGeneration: 1, Ready: condition(!cluster.sick), ChangedAt: c.now.Add(-time.Hour)}
		cluster.copy.Hash, _ = c.want(cluster)
		cluster.cached = cluster.copy
		cluster.stage = []string{"second", "other", "first"}[i%3]
		c.clusters = append(c.clusters, cluster)
	}
	return c
}

// specOf are the specs of copies that are idle and of those that are not.
var specOf = map[bool]map[string]any{true: {"paused": true}, false: {}}

var isReady, isNotReady = &metav1.Condition{Status: metav1.ConditionTrue}, &metav1.Condition{Status: metav1.ConditionFalse}

func condition(ready bool) *metav1.Condition {
	if ready {
		return isReady
	}
	return isNotReady
}

func (c *course) tell(format string, args ...any) {
	if !c.tells {
		return
	}
	c.story = append(c.story, fmt.Sprintf("%v: ", c.now.Sub(waveTime))+fmt.Sprintf(format, args...))
}

func (c *course) violate(format string, args ...any) {
	if c.violation == "" {
		c.violation = fmt.Sprintf(format, args...)
		c.tell("VIOLATION: %s", c.violation)
	}
}

// want returns the hash of the effective spec for a cluster, and whether it is idle.
func (c *course) want(cluster *courseCluster) (string, bool) {
	hash := c.spec.name
	if cluster.own > 0 {
		hash += "+" + strconv.Itoa(cluster.own)
	}
	if c.spec.idle {
		hash += " paused"
	}
	return hash, c.spec.idle
}

func (m *courseCluster) visible() bool { return m.decided && m.away == 0 && !m.cut }

// suspect reports whether the cluster took a change when it was ready and has not been seen ready since.
func (m *courseCluster) suspect() bool { return m.took != "" }

// turns returns what the planner sees.
func (c *course) turns() []Turn {
	var turns []Turn
	for _, m := range c.clusters {
		o := Observation{
			Name: m.name, Fate: FateApply, Trial: c.trials[m.name],
			Member: &Member{
				Decided: m.decided, Visible: m.visible(), Writable: m.visible() && m.paused == 0, Labels: map[string]string{"stage": m.stage},
			},
		}
		if m.left {
			o.Fate = FateLeave
		}
		if m.visible() {
			seen := m.cached
			o.Copy = &seen
		}
		o.Want, o.Kept = c.target(m, o.Copy)
		turn, ok := TurnOf(o, 1)
		if !ok {
			continue
		}
		if permit := c.permits[m.name]; permit.Hash == turn.Want && !permit.Pending {
			turn.PermittedAt = permit.At
		}
		if permit := c.permits[m.name]; turn.Trial.Hash != turn.Want && permit.covers(turn.Trial) {
			permit.Pending, turn.Sight = true, permit.sight(turn.Trial, turn.Copy)
			c.permits[m.name] = permit
		}
		if c.distort(&turn, m) {
			turns = append(turns, turn)
		}
	}
	return turns
}

// pass has the manager decide, and writes as it does.
func (c *course) pass() {
	c.waves.Template = c.spec.name + "/" + strconv.Itoa(c.edits)
	c.see()
	c.stand()
	waves, turns := c.bounds(), c.turns()
	wave := waves.Next(turns, c.now)
	c.check(turns, wave)
	c.follow(waves, wave, turns)
	if !maps.Equal(c.trials, wave.Trials) {
		c.tell("%v go, on trial are %v", wave.Go, wave.Trials)
	}
	permits := map[string]Permit{}
	for _, turn := range turns {
		if _, goes := slices.BinarySearch(wave.Go, turn.Name); !goes {
			continue
		}
		if c.back.now {
			break
		}
		permit := wave.Permit(turn, c.now)
		permit.Pending = permit.Pending && c.without != "the record before the permit"
		permits[turn.Name] = permit
	}
	c.permits = follow(permits, c.permits, wave.Trials)
	if c.without == "the record before the permit" {
		if c.unsaved != nil {
			c.trials = c.unsaved
		}
		c.unsaved = wave.Trials
	} else {
		c.trials = wave.Trials
	}
	c.halted = c.halted || wave.Halted
}

// see notes which clusters the manager sees ready.
func (c *course) see() {
	for _, m := range c.clusters {
		if !m.visible() || !m.cached.Settled() || m.cached.Idle || m.cached.Worse {
			continue
		}
		// What it took later, such as the spec before, shows the same.
		if m.cached.Hash == m.copy.Hash || m.cached.Hash == m.took || m.cached.ChangedAt.After(m.tookAt) {
			m.took = ""
		}
		if c.trials[m.name] != (Trial{}) {
			c.halted = false
		}
	}
}

// isPromoted reports whether a person has promoted the present change.
func (c *course) isPromoted() bool { return c.promoted == c.edits+1 }

// limit returns how many clusters may change together when some are done.
func (c *course) limit(done int) int {
	if done == 0 && len(c.waves.Steps) == 0 {
		return 1
	}
	for _, step := range c.waves.Steps {
		if done < step {
			return step - done
		}
		done -= step
	}
	return c.waves.Batch
}

func (c *course) find(name string) *courseCluster {
	return c.clusters[slices.IndexFunc(c.clusters, func(m *courseCluster) bool { return m.name == name })]
}

// take applies the spec to a copy, as placement does.
func (c *course) take(m *courseCluster) {
	seen := m.cached
	want, _ := c.target(m, &seen)
	hash, idle := want.Hash, want.Idle()
	if m.copy.Hash != seen.Hash || hash == seen.Hash {
		return
	}
	due := Turn{Want: hash, Idle: idle, Copy: &seen, Trial: c.trials[m.name]}.Due() || c.without == "the record before the permit"
	permit := c.permits[m.name]
	if !idle && (permit.Hash != hash || permit.Pending || !due && c.without != "the look before the change") {
		return
	}
	previous := seen.PreviousHash
	if seen.Settled() && !seen.Idle || c.without == "that a previous spec was good" {
		previous = seen.Hash
	}
	if seen.PreviousHash == hash {
		previous = ""
	}
	returns := seen.PreviousHash == hash
	c.checkTake(m, hash, idle)
	m.copy.PreviousHash, m.copy.Hash, m.copy.Rollout, m.copy.ChangedAt = previous, hash, c.waves.Template, c.now
	if reverted(c.change) && !idle {
		m.copy.Rollout = "what was before " + c.change.Rollout
	}
	m.copy.Idle, m.copy.Tried, m.wellSince = idle, c.trials[m.name].Hash == hash, time.Time{}
	m.copy.Generation++
	m.copy.Version = strconv.FormatInt(m.copy.Generation, 10)
	if permit.Hash == hash {
		permit.Sent, permit.Stored = SentStored, m.copy.Version
		c.permits[m.name] = permit
	}
	m.takes = c.random.IntN(6)
	c.changes++
	c.tell("%s takes %q", m.name, hash)
	spec := c.named(hash)
	switch {
	case idle:
		return
	case m.suspect() && returns && !spec.breaks[m.name]:
	case m.suspect(), (seen.Ready.Status == metav1.ConditionTrue || c.trials[m.name].Hash == hash) && !returns, returns && spec.breaks[m.name]:
		m.took, m.tookAt = hash, c.permits[m.name].At
	}
	m.spec = spec
	if spec.cuts[m.name] {
		m.cut = true
		c.tell("%s is cut off", m.name)
	}
}

// live lets a step pass in the clusters.
func (c *course) live() {
	quickness := 6
	if c.nervous {
		quickness = 2
	}
	for _, m := range c.clusters {
		m.away, m.paused, m.hiccup = max(m.away-1, 0), max(m.paused-1, 0), max(m.hiccup-1, 0)
		if m.visible() && m.paused == 0 && !m.left && c.random.IntN(10) < quickness {
			c.take(m)
		}
		if m.takes--; m.takes <= 0 {
			m.copy.ObservedGeneration = m.copy.Generation
			m.copy.Ready = condition(!m.sick && m.hiccup == 0 && !m.spec.breaks[m.name])
			m.copy.Worse = m.spec.worsens[m.name]
		}
		// A cache lags less than cacheLag.
		if m.lag--; m.lag <= 0 {
			m.cached, m.lag = m.copy, c.random.IntN(3)
		}
		m.decided = m.decided || c.random.IntN(4) == 0
	}
	c.now = c.now.Add(c.step)
}
