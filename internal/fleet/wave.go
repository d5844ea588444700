// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	defaultBatch            = "10%"
	defaultProgressDeadline = 10 * time.Minute
)

// Waves are the bounds of a change that spreads over existing copies.
type Waves struct {
	// Template names the change: copies remember which one gave them their spec.
	Template string
	// Batch is how many clusters change together, after the first one.
	Batch int
	// MaxUnready is how many clusters may have taken the change and not be ready in time before it stops.
	MaxUnready int
	// Deadline is how long a cluster may take.
	Deadline time.Duration
}

// NewWaves reads the bounds of a placement that chose so many clusters.
func NewWaves(placement *flotillav1.Placement, template string, chosen int) Waves {
	waves := Waves{Template: template, Deadline: defaultProgressDeadline}
	batch := defaultBatch
	if placement != nil && placement.Rollout != nil {
		waves.MaxUnready = int(placement.Rollout.MaxUnready)
		batch = cmp.Or(placement.Rollout.Batch, defaultBatch)
		if seconds := placement.Rollout.ProgressDeadlineSeconds; seconds > 0 {
			waves.Deadline = time.Duration(seconds) * time.Second
		}
	}
	number, percent := strings.CutSuffix(batch, "%")
	// The API server lets nothing through that is not a number; 0 is one cluster at a time.
	size, _ := strconv.Atoi(number)
	if percent {
		size = (size*chosen + 99) / 100
	}
	waves.Batch = max(size, 1)
	return waves
}

// Turn is a chosen cluster, from the point of view of a change.
type Turn struct {
	Name string
	// Want is the hash of the effective spec for the cluster.
	Want string
	// Copy is nil when the cluster has none of ours, or cannot be seen.
	Copy *Copy
	// Decided and Writable are as in Member.
	Decided, Writable bool
	// LetAt is when the cluster was let change, if it was. It means nothing once the copy shows the change.
	LetAt time.Time
}

// TurnOf is the turn of a cluster of which this was observed, if the change is for it. One that refuses the change, or
// that the change cannot be made for, is as it was, and says nothing about the others.
func TurnOf(o Observation, generation int64) (Turn, bool) {
	if o.Fate != FateApply || o.Member == nil || o.WantError != nil {
		return Turn{}, false
	}
	refused := o.Outcome.Reason != "" && o.Outcome.Generation == generation && !o.Outcome.Held
	if refused && (o.Copy == nil || o.Copy.Hash != o.Want.Hash) {
		return Turn{}, false
	}
	return Turn{Name: o.Name, Want: o.Want.Hash, Copy: o.Copy, Decided: o.Member.Decided, Writable: o.Member.Writable}, true
}

// Wave is what may change now.
type Wave struct {
	// Go are the clusters that may take the change, sorted.
	Go []string
	// Held are those that wait for the ones before them, sorted.
	Held []string
	// Failed are those that took the change and are not ready in time, sorted.
	Failed []string
	// Halted says that those that wait do so until something changes.
	Halted bool
	// Recheck is when the next cluster runs out of time; 0 is never.
	Recheck time.Duration
	// Undecided says that this process does not know enough yet.
	Undecided bool
}

// stage is how far a cluster is with a change.
type stage int

const (
	// apart takes no part: the change does not concern it, or it cannot be seen or written now.
	apart stage = iota
	waiting
	moving
	done
	failed
	// returning gets back what it had before, which needs no trial.
	returning
	// late was let change and has not done so in time. Nothing broke there, so nobody waits for it.
	late
)

// Next decides who may take the change now. One cluster goes first; when it is ready, batches follow, each after the one
// before it is ready. A cluster that cannot be seen is passed over and comes later. Everything is read from the copies,
// so the answer is the same after a restart; only clusters that were let go a moment ago are remembered by the caller.
func (w Waves) Next(turns []Turn, now time.Time) Wave {
	var wave Wave
	var candidates []Turn
	count := map[stage]int{}
	for _, turn := range turns {
		at, rest := w.stage(turn, now)
		count[at]++
		wave.Undecided = wave.Undecided || !turn.Decided
		switch at {
		case waiting:
			candidates = append(candidates, turn)
		case returning, late:
			wave.Go = append(wave.Go, turn.Name)
		case failed:
			wave.Failed = append(wave.Failed, turn.Name)
		case moving:
			if !turn.shown() {
				wave.Go = append(wave.Go, turn.Name)
			}
			if wave.Recheck == 0 || rest < wave.Recheck {
				wave.Recheck = rest
			}
		}
	}
	wave.Halted = count[failed] > w.MaxUnready && len(candidates) > 0
	next := w.Batch
	switch {
	// A member that nobody has looked at since a start may be in the middle of it.
	case wave.Halted, wave.Undecided, count[moving] > 0:
		next = 0
	case count[done] == 0:
		next = 1
	}
	next = min(next, len(candidates))
	sortCandidates(candidates)
	wave.Go = append(wave.Go, names(candidates[:next])...)
	wave.Held = names(candidates[next:])
	slices.Sort(wave.Go)
	slices.Sort(wave.Held)
	slices.Sort(wave.Failed)
	return wave
}

func names(turns []Turn) []string {
	var names []string
	for _, turn := range turns {
		names = append(names, turn.Name)
	}
	return names
}

// shown reports whether the copy shows the change.
func (t Turn) shown() bool { return t.Copy.Hash == t.Want }

// stage also returns how much time a moving cluster has left.
func (w Waves) stage(turn Turn, now time.Time) (stage, time.Duration) {
	seen := turn.Copy
	switch {
	case seen == nil || seen.Deleting:
		return apart, 0
	case !turn.shown():
		return w.before(turn, now)
	case seen.Rollout != w.Template:
		return apart, 0
	case seen.Settled():
		return done, 0
	}
	if rest := seen.ChangedAt.Add(w.Deadline).Sub(now); rest > 0 {
		return moving, rest
	}
	return failed, 0
}

// before is the stage of a cluster whose copy does not show the change.
func (w Waves) before(turn Turn, now time.Time) (stage, time.Duration) {
	switch {
	case turn.Copy.PreviousHash == turn.Want:
		return returning, 0
	case !turn.Writable:
		return apart, 0
	case turn.LetAt.IsZero():
		return waiting, 0
	}
	if rest := turn.LetAt.Add(w.Deadline).Sub(now); rest > 0 {
		return moving, rest
	}
	return late, 0
}

// sortCandidates puts first those that took a change that the others were spared: they have it behind them. Then come
// those that are well, so that a cluster that was not ready before cannot stop the rest.
func sortCandidates(candidates []Turn) {
	carried := map[string]int{}
	for _, turn := range candidates {
		carried[turn.Copy.Rollout]++
	}
	slices.SortFunc(candidates, func(a, b Turn) int {
		return cmp.Or(
			compareBool(carried[b.Copy.Rollout]*2 < len(candidates), carried[a.Copy.Rollout]*2 < len(candidates)),
			compareBool(b.Copy.Settled(), a.Copy.Settled()),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// Settled reports whether the member has made what the copy says.
func (c *Copy) Settled() bool {
	return c.Ready != nil && c.Ready.Status == metav1.ConditionTrue && !c.Progressing && c.ObservedGeneration >= c.Generation
}
