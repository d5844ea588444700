// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	defaultBatch            = "10%"
	defaultProgressDeadline = 10 * time.Minute
)

// Waves are the limits of a rollout to existing copies.
type Waves struct {
	// Template identifies the change. Copies record which change led to their spec.
	Template string
	// Steps are the numbers of clusters that change together at first, by default one, and Batch that of those after them.
	Steps []int
	Batch int
	// Done is the number of clusters that took the change and are ready and that are not among the turns.
	Done int
	// MaxUnready is the number of changed clusters that may fail to become ready in time before the rollout halts.
	MaxUnready int
	// Deadline is the time that a cluster has to become ready.
	Deadline time.Duration
	// Soak is how long a changed cluster has to stay ready.
	Soak time.Duration
	// Order groups the clusters; nil means that they are one group.
	Order *flotillav1.RolloutOrder
	// Paused reports whether a person has paused the rollout: no further cluster goes on trial.
	Paused bool
	// Revert reports whether a change that fails is taken back, and Reverted whether the present one was: no cluster takes it.
	Revert, Reverted bool
	// Room reports whether a cluster may take a further change, besides those of other objects; nil means always. It is asked
	// in the order in which the clusters change, and not for a correction: these clusters have begun.
	Room func(clusterName string) bool
}

// NewWaves returns the limits of the rollout of a hub object that is placed in the given number of clusters.
func NewWaves(object flotillav1.Placeable, template string, chosen int) Waves {
	waves := Waves{Template: template, Deadline: defaultProgressDeadline, Reverted: RevertedChange(object) != nil}
	batch := defaultBatch
	if placement := object.GetPlacement(); placement != nil && placement.Rollout != nil {
		for _, step := range placement.Rollout.Steps {
			waves.Steps = append(waves.Steps, sizeOf(step, chosen))
		}
		waves.MaxUnready, waves.Paused = int(placement.Rollout.MaxUnready), placement.Rollout.Paused
		waves.Revert = placement.Rollout.OnHalt == flotillav1.OnHaltRevert
		waves.Soak, waves.Order = time.Duration(placement.Rollout.SoakSeconds)*time.Second, placement.Rollout.Order
		batch = cmp.Or(placement.Rollout.Batch, defaultBatch)
		if seconds := placement.Rollout.ProgressDeadlineSeconds; seconds > 0 {
			waves.Deadline = time.Duration(seconds) * time.Second
		}
	}
	waves.Batch = sizeOf(batch, chosen)
	switch PromotionOf(object) {
	case PromotionFull:
		waves.Soak, waves.Order, waves.Steps, waves.Batch = 0, nil, []int{maxBatch}, maxBatch
	case PromotionSoak:
		waves.Soak = 0
	}
	return waves
}

// sizeOf returns the number of clusters in a batch that is a number or a percentage of the chosen clusters.
func sizeOf(batch string, chosen int) int {
	number, percent := strings.CutSuffix(batch, "%")
	// The API server only accepts numbers; 0 means one cluster at a time.
	size, _ := strconv.Atoi(number)
	if percent {
		size = (size*chosen + 99) / 100
	}
	return min(max(size, 1), maxBatch)
}

// next returns the number of clusters that change together when some are done: what is left of the present step, or a batch.
func (w Waves) next(done int) int {
	steps, total := w.Steps, 0
	if len(steps) == 0 {
		steps = []int{1}
	}
	for _, step := range steps {
		if total += step; done < total {
			return total - done
		}
	}
	return w.Batch
}

// Wave is the decision about which clusters may change.
type Wave struct {
	// Go lists the clusters that may take the change, sorted.
	Go []string
	// Held lists the clusters that wait for others, sorted.
	Held []string
	// Failed lists the clusters that may have taken a change and are not known to be ready in time, sorted.
	Failed []string
	// Trials are the clusters on trial from now on. They have to be recorded before a cluster in Go takes the change.
	Trials Trials
	// Unseen lists those of Failed that cannot be seen, and Harmed those that may have failed because of the desired spec, both
	// sorted.
	Unseen, Harmed []string
	// Kept lists the clusters that have what they had before a change that was taken back, or are about to get it, sorted.
	Kept []string
	// Done is the number of clusters that have the change and are ready with it, unless Undecided.
	Done int
	// Changing lists the clusters that may be changing from now on and have not failed, and Crowded those of Held that have
	// no room, both sorted.
	Changing, Crowded []string
	// Halted reports whether the rollout has stopped: the waiting clusters wait until something changes. Paused reports
	// whether they wait for a person.
	Halted, Paused bool
	// Recheck is the time until the next deadline; 0 means that there is none.
	Recheck time.Duration
	// Undecided reports whether this process has not observed all clusters yet.
	Undecided bool
}

// Next decides which clusters may take the change:
//
//  1. A cluster that gets a spec back with which it was ready, or one that is paused, needs no trial.
//  2. While more than MaxUnready clusters on trial have failed, no other cluster changes. A cluster on trial that cannot
//     be seen counts as failed like one that is not ready.
//  3. A correction goes to the clusters on trial first, whether or not 2 applies, and to others when these are ready.
//  4. Then the ready clusters change, group by group and in order of their names, and then those that were not ready before. The latter are
//     not on trial: they neither stop the others nor go first.
//  5. One cluster changes alone, or as many as the first step says; further steps and then batches follow, each after the
//     previous one is ready or has failed.
//  6. While a person pauses the rollout, only specs that need no trial and clusters that have begun go on.
//  7. A cluster without room for another change is passed over until there is.
//  8. While a change is taken back, only the specs that clusters get back go on.
//
// The decision depends only on the copies and on the recorded trials, so it is the same after a restart. For the clusters
// that are not on trial the caller also has to remember recent permits.
func (w Waves) Next(turns []Turn, now time.Time) Wave {
	r := round{waves: w, now: now.UTC().Truncate(time.Microsecond), wave: Wave{Trials: Trials{}}, count: map[stage]int{}, candidates: map[stage][]Turn{}}
	for _, turn := range turns {
		r.add(turn)
	}
	for _, candidates := range r.candidates {
		slices.SortFunc(candidates, func(a, b Turn) int {
			return cmp.Or(
				compareBool(a.Trial.Hash == passedOver, b.Trial.Hash == passedOver), cmp.Compare(w.group(a), w.group(b)), cmp.Compare(a.Name, b.Name),
			)
		})
	}
	first, second, last := r.candidates[broken], r.candidates[ready], r.candidates[unready]
	wave := &r.wave
	failing := r.count[failed]+r.count[lost] > w.MaxUnready
	batch := min(w.next(w.Done+r.count[done]), maxBatch, max(maxTrials-len(wave.Trials), 0)+len(first))
	var next []Turn
	switch {
	// A member that has not been observed since the start may be in the middle of the change.
	case wave.Undecided, w.Paused, w.Reverted:
	case len(first) > 0:
		if r.count[moving] == 0 && r.count[failed] <= w.MaxUnready {
			next = first[:min(batch, len(first))]
		}
	case failing || r.count[moving]+r.count[recovering] > 0:
	default:
		next = r.admit(w.sameGroup(second), batch)
		if r.count[slow] == 0 && len(next) == len(second) {
			next = slices.Concat(next, r.admit(last, batch-len(next)))
		}
	}
	r.let(next, slices.Concat(first, second, last))
	if !wave.Undecided {
		wave.Done = w.Done + r.count[done]
	}
	wave.Halted = failing && len(wave.Held) > 0 && len(next) == 0
	wave.Paused = w.Paused && len(wave.Held) > 0
	for _, names := range [][]string{wave.Go, wave.Held, wave.Failed, wave.Unseen, wave.Harmed, wave.Kept, wave.Changing, wave.Crowded} {
		slices.Sort(names)
	}
	return r.wave
}

// Progress returns the numbers of clusters for the status of the hub object, or nil if no change is under way.
func (w Wave) Progress() *flotillav1.RolloutStatus {
	if len(w.Changing)+len(w.Failed)+len(w.Held)+len(w.Kept) == 0 {
		return nil
	}
	return &flotillav1.RolloutStatus{
		Done: int32(w.Done), Changing: int32(len(w.Changing)), Failed: int32(len(w.Failed)), Waiting: int32(len(w.Held)),
		Reverted: int32(len(w.Kept)),
	}
}

// group returns the group of a cluster; lower ones change first.
func (w Waves) group(turn Turn) int {
	if w.Order == nil {
		return 0
	}
	value, labelled := turn.Labels[w.Order.Label]
	if group := slices.Index(w.Order.Values, value); labelled && group >= 0 {
		return group
	}
	return len(w.Order.Values)
}

// sameGroup returns the first of the clusters and those that follow in its group.
func (w Waves) sameGroup(turns []Turn) []Turn {
	for i := range turns {
		if w.group(turns[i]) != w.group(turns[0]) {
			return turns[:i]
		}
	}
	return turns
}

// round is the state of one call of Next.
type round struct {
	waves      Waves
	now        time.Time
	wave       Wave
	count      map[stage]int
	candidates map[stage][]Turn
}

// add counts a cluster and decides about it, unless it waits for its turn.
func (r *round) add(turn Turn) {
	trial := r.waves.trial(turn, r.now)
	if trial != (Trial{}) {
		r.wave.Trials[turn.Name] = trial
	}
	if !turn.Decided {
		r.wave.Undecided = true
		return
	}
	turn.Trial = trial
	at, rest := r.waves.stage(turn, r.now)
	r.count[at]++
	permitted := false
	switch at {
	case broken, ready, unready:
		r.candidates[at] = append(r.candidates[at], turn)
	case returning, late:
		permitted = true
	case moving, failed, slow:
		permitted = turn.takes()
	case recovering, lost:
		permitted = turn.takes() && turn.returns()
	}
	if permitted {
		r.wave.Go = append(r.wave.Go, turn.Name)
	}
	switch at {
	case moving, recovering, slow:
		r.wave.Changing = append(r.wave.Changing, turn.Name)
	case failed, lost:
		r.wave.Failed = append(r.wave.Failed, turn.Name)
		if turn.Copy == nil {
			r.wave.Unseen = append(r.wave.Unseen, turn.Name)
		}
		if at == failed && (turn.Copy == nil || turn.shown()) {
			r.wave.Harmed = append(r.wave.Harmed, turn.Name)
		}
	default:
		if turn.Kept && turn.alive() {
			r.wave.Kept = append(r.wave.Kept, turn.Name)
		}
	}
	if rest > 0 && (r.wave.Recheck == 0 || rest < r.wave.Recheck) {
		r.wave.Recheck = rest
	}
}

// admit returns the first n of the clusters that have room for another change.
func (r *round) admit(turns []Turn, n int) []Turn {
	var admitted []Turn
	for _, turn := range turns {
		switch {
		case len(admitted) == n:
			return admitted
		case r.waves.Room == nil || r.waves.Room(turn.Name):
			admitted = append(admitted, turn)
		default:
			r.wave.Crowded = append(r.wave.Crowded, turn.Name)
		}
	}
	return admitted
}

// let lets the next of the candidates go. All but those that were not ready before are on trial from now on.
func (r *round) let(next, candidates []Turn) {
	goes := map[string]bool{}
	for _, turn := range next {
		goes[turn.Name] = true
		r.wave.Go = append(r.wave.Go, turn.Name)
		r.wave.Changing = append(r.wave.Changing, turn.Name)
		if turn.Trial != (Trial{}) || turn.fit() {
			r.wave.Trials[turn.Name] = Trial{Hash: turn.Want, Since: r.now}
		}
	}
	for _, turn := range candidates {
		if !goes[turn.Name] {
			r.wave.Held = append(r.wave.Held, turn.Name)
		}
	}
}

// compareBool compares two booleans; false is less than true.
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
