// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

var (
	waveTime = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	waves    = Waves{Template: "t2", Batch: 2, Deadline: 10 * time.Minute}
)

// turn is a cluster whose copy has the hash "old" of the change before.
func turn(name string, changes ...func(*Turn)) Turn {
	t := Turn{Name: name, Want: "new", Decided: true, Writable: true, Copy: &Copy{
		Hash: "old", Rollout: "t1", Generation: 1, ObservedGeneration: 1, ChangedAt: waveTime.Add(-time.Hour),
		Ready: &metav1.Condition{Status: metav1.ConditionTrue},
	}}
	for _, change := range changes {
		change(&t)
	}
	return t
}

// took has a cluster take the change some time ago.
func took(ago time.Duration) func(*Turn) {
	return func(t *Turn) {
		t.Copy.PreviousHash, t.Copy.Hash, t.Copy.Rollout, t.Copy.ChangedAt = t.Copy.Hash, t.Want, waves.Template, waveTime.Add(-ago)
	}
}

func unready(t *Turn)    { t.Copy.Ready = &metav1.Condition{Status: metav1.ConditionFalse} }
func unseen(t *Turn)     { t.Copy = nil }
func undecided(t *Turn)  { t.Copy, t.Decided = nil, false }
func paused(t *Turn)     { t.Writable = false }
func let(t *Turn)        { t.LetAt = waveTime }
func letLongAgo(t *Turn) { t.LetAt = waveTime.Add(-time.Hour) }

func TestWaves(t *testing.T) {
	ready := func(*Turn) {}
	for name, tc := range map[string]struct {
		waves Waves
		turns []Turn
		want  Wave
	}{
		"one goes first": {
			turns: []Turn{turn("a"), turn("b"), turn("c")},
			want:  Wave{Go: []string{"a"}, Held: []string{"b", "c"}},
		},
		"who was let go is waited for": {
			turns: []Turn{turn("a", let), turn("b"), turn("c")},
			want:  Wave{Go: []string{"a"}, Held: []string{"b", "c"}, Recheck: 10 * time.Minute},
		},
		"who was let go and does not take it in time is not waited for": {
			turns: []Turn{turn("a", letLongAgo), turn("b"), turn("c")},
			want:  Wave{Go: []string{"a", "b"}, Held: []string{"c"}},
		},
		"who took it is waited for": {
			turns: []Turn{turn("a", took(time.Minute), unready), turn("b")},
			want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute},
		},
		"who still changes is not ready": {
			turns: []Turn{turn("a", took(time.Minute), func(t *Turn) { t.Copy.Progressing = true }), turn("b")},
			want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute},
		},
		"ready for what was before is not ready": {
			turns: []Turn{turn("a", took(time.Minute), func(t *Turn) { t.Copy.Generation = 2 }), turn("b")},
			want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute},
		},
		"a batch follows": {
			turns: []Turn{turn("a", took(time.Minute), ready), turn("b"), turn("c"), turn("d")},
			want:  Wave{Go: []string{"b", "c"}, Held: []string{"d"}},
		},
		"a batch is waited for": {
			turns: []Turn{turn("a", took(5*time.Minute), ready), turn("b", took(time.Minute), ready), turn("c", took(time.Minute), unready), turn("d")},
			want:  Wave{Held: []string{"d"}, Recheck: 9 * time.Minute},
		},
		"not ready in time stops it": {
			turns: []Turn{turn("a", took(10*time.Minute), unready), turn("b")},
			want:  Wave{Held: []string{"b"}, Failed: []string{"a"}, Halted: true},
		},
		"as many as allowed do not stop it, and the next goes alone until one is ready": {
			waves: Waves{Template: "t2", Batch: 2, MaxUnready: 1, Deadline: 10 * time.Minute},
			turns: []Turn{turn("a", took(time.Hour), unready), turn("b"), turn("c"), turn("d")},
			want:  Wave{Go: []string{"b"}, Held: []string{"c", "d"}, Failed: []string{"a"}},
		},
		"nothing is halted when nobody waits": {
			turns: []Turn{turn("a", took(time.Hour), unready)},
			want:  Wave{Failed: []string{"a"}},
		},
		"who cannot be seen is passed over": {
			turns: []Turn{turn("a", unseen), turn("b"), turn("c")},
			want:  Wave{Go: []string{"b"}, Held: []string{"c"}},
		},
		"who went away in the middle is not waited for": {
			turns: []Turn{turn("a", unseen, let), turn("b")},
			want:  Wave{Go: []string{"b"}},
		},
		"who was not looked at since the start is waited for": {
			turns: []Turn{turn("a", undecided), turn("b")},
			want:  Wave{Held: []string{"b"}, Undecided: true},
		},
		"who is paused is passed over": {
			turns: []Turn{turn("a", paused), turn("b")},
			want:  Wave{Go: []string{"b"}},
		},
		"who was not ready before comes last": {
			turns: []Turn{turn("a", unready), turn("b"), turn("c")},
			want:  Wave{Go: []string{"b"}, Held: []string{"a", "c"}},
		},
		"a return goes at once": {
			turns: []Turn{
				turn("a", took(time.Hour), unready, func(t *Turn) { t.Want = "old" }),
				turn("b", took(time.Hour), unready, func(t *Turn) { t.Want = "old" }),
				turn("c", func(t *Turn) { t.Want = "old" }),
			},
			want: Wave{Go: []string{"a", "b"}},
		},
		"a correction goes first to who took what was wrong": {
			turns: []Turn{turn("a"), turn("b", unready, func(t *Turn) { t.Copy.Hash, t.Copy.Rollout = "bad", "t1b" }), turn("c")},
			want:  Wave{Go: []string{"b"}, Held: []string{"a", "c"}},
		},
		"who the change does not concern stops nothing": {
			turns: []Turn{turn("a", unready, func(t *Turn) { t.Want = "old" }), turn("b")},
			want:  Wave{Go: []string{"b"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bounds := waves
			if tc.waves.Template != "" {
				bounds = tc.waves
			}
			got := bounds.Next(tc.turns, waveTime)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Next() (-want +got):\n%s", diff)
			}
			slices.Reverse(tc.turns)
			if diff := cmp.Diff(got, bounds.Next(tc.turns, waveTime)); diff != "" {
				t.Errorf("the order of the clusters matters:\n%s", diff)
			}
		})
	}
}

func TestNewWaves(t *testing.T) {
	for batch, want := range map[string]int{"": 10, "10%": 10, "1%": 1, "3": 3, "100%": 95, "5%": 5} {
		placement := &flotillav1.Placement{Rollout: &flotillav1.Rollout{Batch: batch}}
		if got := NewWaves(placement, "t", 95).Batch; got != want {
			t.Errorf("batch %q of 95 clusters is %d, want %d", batch, got, want)
		}
	}
	if got := NewWaves(nil, "t", 3); got != (Waves{Template: "t", Batch: 1, Deadline: 10 * time.Minute}) {
		t.Errorf("without a placement: %+v", got)
	}
}

// TestWaves_any_course plays rollouts in which clusters fail, go away, come back and are forgotten by a restart, and
// checks the bounds at every step, and that each rollout ends.
func TestWaves_any_course(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			newRollout(rand.New(rand.NewPCG(seed, 1))).play(t)
		})
	}
}

// rollout is a fleet that takes a change.
type rollout struct {
	random *rand.Rand
	waves  Waves
	now    time.Time
	turns  []Turn
	away   map[string]*Copy
	// breaks are the clusters that the change breaks.
	breaks map[string]bool
}

func newRollout(random *rand.Rand) *rollout {
	r := &rollout{random: random, now: waveTime, away: map[string]*Copy{}, breaks: map[string]bool{}}
	r.waves = Waves{Template: "t2", Batch: 1 + random.IntN(4), MaxUnready: random.IntN(3), Deadline: 10 * time.Minute}
	breaking := random.IntN(3) == 0
	for i := range 1 + random.IntN(20) {
		name := fmt.Sprintf("m%02d", i)
		r.turns = append(r.turns, turn(name))
		r.breaks[name] = breaking && random.IntN(3) == 0
	}
	return r
}

func (r *rollout) play(t *testing.T) {
	for step := range 400 {
		wave := r.waves.Next(r.turns, r.now)
		r.check(t, wave)
		if t.Failed() {
			return
		}
		if r.ended(wave) {
			return
		}
		for i := range r.turns {
			let := &r.turns[i].LetAt
			switch goes := slices.Contains(wave.Go, r.turns[i].Name); {
			case !goes:
				*let = time.Time{}
			case let.IsZero():
				*let = r.now
			}
		}
		r.happen(step)
		r.now = r.now.Add(time.Minute)
	}
	t.Errorf("the rollout does not end: %+v", r.waves.Next(r.turns, r.now))
}

// check looks at the bounds: how many are on their way together, and how many have failed before somebody new goes.
func (r *rollout) check(t *testing.T, wave Wave) {
	t.Helper()
	fresh, onTheirWay, ready := 0, 0, 0
	for _, turn := range r.turns {
		goes := slices.Contains(wave.Go, turn.Name)
		at, _ := r.waves.stage(turn, r.now)
		switch {
		case goes && turn.LetAt.IsZero():
			fresh++
		case at == moving:
			onTheirWay++
		case at == done:
			ready++
		}
		if goes && turn.Copy == nil {
			t.Errorf("%s is let go and cannot be seen", turn.Name)
		}
	}
	bound := r.waves.Batch
	if ready == 0 {
		bound = 1
	}
	if fresh > bound || fresh > 0 && onTheirWay > 0 {
		t.Errorf("%d start, %d are on their way, %d are ready; the bound is %d", fresh, onTheirWay, ready, bound)
	}
	if fresh > 0 && len(wave.Failed) > r.waves.MaxUnready {
		t.Errorf("%d start although %d have failed", fresh, len(wave.Failed))
	}
}

// ended reports whether nothing will change any more by itself.
func (r *rollout) ended(wave Wave) bool {
	if wave.Halted {
		return true
	}
	for _, turn := range r.turns {
		if turn.Copy == nil || turn.Copy.Hash != turn.Want {
			return false
		}
	}
	return true
}

// happen has the clusters that were let go take the change, sometimes later, and others get ready, go away or come back.
func (r *rollout) happen(step int) {
	for i := range r.turns {
		turn := &r.turns[i]
		switch dice := r.random.IntN(20); {
		case turn.Copy == nil && (dice < 4 || step > 200):
			turn.Copy = r.away[turn.Name]
		case turn.Copy == nil:
		case !turn.LetAt.IsZero() && turn.Copy.Hash != turn.Want && dice < 10:
			was := turn.Copy.Hash
			turn.Copy.PreviousHash, turn.Copy.Hash, turn.Copy.Rollout, turn.Copy.ChangedAt = was, turn.Want, r.waves.Template, r.now
			turn.Copy.Generation++
		case dice == 19 && step < 200:
			r.away[turn.Name], turn.Copy = turn.Copy, nil
		case turn.Copy.ObservedGeneration < turn.Copy.Generation && dice < 15:
			turn.Copy.ObservedGeneration = turn.Copy.Generation
			if r.breaks[turn.Name] {
				unready(turn)
			}
		}
	}
	if r.random.IntN(30) == 0 {
		// The manager restarts: what it let go and was not taken is forgotten.
		for i := range r.turns {
			r.turns[i].LetAt = time.Time{}
		}
	}
}
