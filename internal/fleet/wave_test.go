// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
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
		Hash: "old", Rollout: "t1", Generation: 1, ObservedGeneration: 1, ChangedAt: waveTime.Add(-time.Hour), Recorded: true,
		Ready: &metav1.Condition{Status: metav1.ConditionTrue},
	}}
	for _, change := range changes {
		change(&t)
	}
	return t
}

// took makes a cluster have taken the change on trial some time ago, and tookUntried without a trial.
func took(ago time.Duration) func(*Turn) {
	return func(t *Turn) {
		tookUntried(ago)(t)
		t.Trial = Trial{Hash: t.Want, Since: waveTime.Add(-ago)}
	}
}

func tookUntried(ago time.Duration) func(*Turn) {
	return func(t *Turn) {
		t.Copy.PreviousHash, t.Copy.Hash, t.Copy.Rollout, t.Copy.ChangedAt = t.Copy.Hash, t.Want, waves.Template, waveTime.Add(-ago)
	}
}

// wants changes what the cluster should have.
func wants(hash string) func(*Turn) { return func(t *Turn) { t.Want = hash } }

func notReady(t *Turn)   { t.Copy.Ready = &metav1.Condition{Status: metav1.ConditionFalse} }
func unseen(t *Turn)     { t.Copy = nil }
func undecided(t *Turn)  { t.Copy, t.Decided = nil, false }
func paused(t *Turn)     { t.Writable = false }
func let(t *Turn)        { t.Trial = Trial{Hash: t.Want, Since: waveTime} }
func letLongAgo(t *Turn) { t.Trial = Trial{Hash: t.Want, Since: waveTime.Add(-time.Hour)} }
func older(t *Turn)      { t.Copy.Recorded, t.Trial = false, Trial{} }
func worse(t *Turn)      { t.Copy.Worse = true }
func absent(t *Turn)     { t.Copy, t.Absent = nil, true }

// stages are groups of clusters, and staged puts a cluster into one.
var stages = &flotillav1.RolloutOrder{Label: "stage", Values: []string{"test", "canary"}}

func staged(stage string) func(*Turn) {
	return func(t *Turn) { t.Labels = map[string]string{"stage": stage} }
}

var wavesTests = map[string]struct {
	waves Waves
	turns []Turn
	want  Wave
	// tried are the clusters that are on trial afterwards.
	tried []string
}{
	"one goes first": {
		turns: []Turn{turn("a"), turn("b"), turn("c")},
		want:  Wave{Go: []string{"a"}, Held: []string{"b", "c"}}, tried: []string{"a"},
	},
	"who was let go is waited for": {
		turns: []Turn{turn("a", let), turn("b"), turn("c")},
		want:  Wave{Go: []string{"a"}, Held: []string{"b", "c"}, Recheck: 10 * time.Minute}, tried: []string{"a"},
	},
	"who was let go and does not take it in time is not waited for": {
		turns: []Turn{turn("a", letLongAgo), turn("b"), turn("c")},
		want:  Wave{Held: []string{"b", "c"}, Recheck: time.Minute}, tried: []string{"a"},
	},
	"who was passed over comes after the others": {
		turns: []Turn{turn("a", func(t *Turn) { t.Trial = Trial{Since: waveTime.Add(-time.Minute)} }), turn("b"), turn("c")},
		want:  Wave{Go: []string{"b"}, Held: []string{"a", "c"}}, tried: []string{"a", "b"},
	},
	"who took it is waited for": {
		turns: []Turn{turn("a", took(time.Minute), notReady), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute}, tried: []string{"a"},
	},
	"who still changes is not ready": {
		turns: []Turn{turn("a", took(time.Minute), func(t *Turn) { t.Copy.Progressing = true }), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute}, tried: []string{"a"},
	},
	"ready for what was before is not ready": {
		turns: []Turn{turn("a", took(time.Minute), func(t *Turn) { t.Copy.Generation = 2 }), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute}, tried: []string{"a"},
	},
	"nodes that got worse are not ready": {
		turns: []Turn{turn("a", took(time.Minute), worse), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute}, tried: []string{"a"},
	},
	"a batch follows": {
		turns: []Turn{turn("a", took(time.Minute)), turn("b"), turn("c"), turn("d")},
		want:  Wave{Go: []string{"b", "c"}, Held: []string{"d"}}, tried: []string{"b", "c"},
	},
	"a batch is waited for": {
		turns: []Turn{turn("a", took(5*time.Minute)), turn("b", took(time.Minute)), turn("c", took(time.Minute), notReady), turn("d")},
		want:  Wave{Held: []string{"d"}, Recheck: 9 * time.Minute}, tried: []string{"c"},
	},
	"one that goes slowly by its own limits has that time in addition": {
		turns: []Turn{turn("a", took(20*time.Minute), notReady, func(t *Turn) { t.Copy.Progressing, t.Copy.Pace = true, 15*time.Minute }), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 5 * time.Minute}, tried: []string{"a"},
	},
	"and no more than that": {
		turns: []Turn{turn("a", took(25*time.Minute), notReady, func(t *Turn) { t.Copy.Progressing, t.Copy.Pace = true, 15*time.Minute }), turn("b")},
		want:  Wave{Held: []string{"b"}, Failed: []string{"a"}, Halted: true}, tried: []string{"a"},
	},
	"not ready in time stops it": {
		turns: []Turn{turn("a", took(10*time.Minute), notReady), turn("b")},
		want:  Wave{Held: []string{"b"}, Failed: []string{"a"}, Halted: true}, tried: []string{"a"},
	},
	"as many as allowed do not stop it, and the next goes alone until one is ready": {
		waves: Waves{Template: "t2", Batch: 2, MaxUnready: 1, Deadline: 10 * time.Minute},
		turns: []Turn{turn("a", took(time.Hour), notReady), turn("b"), turn("c"), turn("d")},
		want:  Wave{Go: []string{"b"}, Held: []string{"c", "d"}, Failed: []string{"a"}}, tried: []string{"a", "b"},
	},
	"nothing is halted when nobody waits": {
		turns: []Turn{turn("a", took(time.Hour), notReady)},
		want:  Wave{Failed: []string{"a"}}, tried: []string{"a"},
	},
	"who cannot be seen is passed over": {
		turns: []Turn{turn("a", unseen), turn("b"), turn("c")},
		want:  Wave{Go: []string{"b"}, Held: []string{"c"}}, tried: []string{"b"},
	},
	"who went away in the middle is waited for": {
		turns: []Turn{turn("a", unseen, let), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 10 * time.Minute}, tried: []string{"a"},
	},
	"who does not come back stops it": {
		turns: []Turn{turn("a", letLongAgo, unseen), turn("b")},
		want:  Wave{Held: []string{"b"}, Failed: []string{"a"}, Unseen: []string{"a"}, Halted: true}, tried: []string{"a"},
	},
	"who took another spec and cannot be seen stops it too": {
		turns: []Turn{turn("a", letLongAgo, wants("newer"), unseen), turn("b")},
		want:  Wave{Held: []string{"b"}, Failed: []string{"a"}, Unseen: []string{"a"}, Halted: true}, tried: []string{"a"},
	},
	"a hiccup after the change stops nothing": {
		turns: []Turn{turn("a", tookUntried(20*time.Minute), notReady), turn("b")},
		want:  Wave{Go: []string{"b"}}, tried: []string{"b"},
	},
	"a copy of an older version is on trial while it is not ready": {
		turns: []Turn{turn("a", took(time.Hour), notReady, older), turn("b")},
		want:  Wave{Held: []string{"b"}, Failed: []string{"a"}, Halted: true}, tried: []string{"a"},
	},
	"a copy of an older version that was not ready before the present change is not": {
		turns: []Turn{turn("a", took(time.Hour), notReady, older, wants("newer")), turn("b")},
		want:  Wave{Go: []string{"b"}, Held: []string{"a"}}, tried: []string{"b"},
	},
	"who was not looked at since the start is waited for": {
		turns: []Turn{turn("a", undecided), turn("b")},
		want:  Wave{Held: []string{"b"}, Undecided: true},
	},
	"who is paused is passed over": {
		turns: []Turn{turn("a", paused), turn("b")},
		want:  Wave{Go: []string{"b"}}, tried: []string{"b"},
	},
	"who was not ready before comes last": {
		turns: []Turn{turn("a", notReady), turn("b"), turn("c")},
		want:  Wave{Go: []string{"b"}, Held: []string{"a", "c"}}, tried: []string{"b"},
	},
	"who was not ready before waits for others like it, and is not on trial": {
		turns: []Turn{turn("a", tookUntried(time.Minute), notReady), turn("b", notReady)},
		want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute},
	},
	"who was not ready before is not waited for longer": {
		turns: []Turn{turn("a", tookUntried(time.Hour), notReady), turn("b", notReady)},
		want:  Wave{Go: []string{"b"}},
	},
	"a return goes at once": {
		turns: []Turn{
			turn("a", took(time.Hour), notReady, wants("old")), turn("b", tookUntried(time.Hour), wants("old")), turn("c", wants("old")),
		},
		want: Wave{Go: []string{"a", "b"}, Failed: []string{"a"}}, tried: []string{"a"},
	},
	"a correction goes first to who took what was wrong": {
		turns: []Turn{turn("a"), turn("b", took(time.Hour), notReady, wants("newer")), turn("c")},
		want:  Wave{Go: []string{"b"}, Held: []string{"a", "c"}}, tried: []string{"b"},
	},
	"also if they are the majority": {
		turns: []Turn{turn("a"), turn("b", took(time.Hour), notReady, wants("newer")), turn("c", took(time.Hour), notReady, wants("newer"))},
		want:  Wave{Go: []string{"b"}, Held: []string{"a", "c"}}, tried: []string{"b", "c"},
	},
	"others wait until a correction has helped": {
		turns: []Turn{turn("a"), turn("b", took(time.Minute), notReady)},
		want:  Wave{Held: []string{"a"}, Recheck: 9 * time.Minute}, tried: []string{"b"},
	},
	"an edit for another cluster does not end a halt": {
		turns: []Turn{turn("a", took(time.Hour), notReady, func(t *Turn) { t.Copy.Rollout = "t1b" }), turn("b")},
		want:  Wave{Held: []string{"b"}, Failed: []string{"a"}, Halted: true}, tried: []string{"a"},
	},
	"what is paused goes at once": {
		turns: []Turn{turn("a", took(time.Hour), notReady), turn("b", func(t *Turn) { t.Idle = true }), turn("c")},
		want:  Wave{Go: []string{"b"}, Held: []string{"c"}, Failed: []string{"a"}, Halted: true}, tried: []string{"a"},
	},
	"a creation that evicts waits for its turn": {
		turns: []Turn{turn("a", absent), turn("b", absent)},
		want:  Wave{Go: []string{"a"}, Held: []string{"b"}}, tried: []string{"a"},
	},
	"a spec that is refused is not on trial": {
		turns: []Turn{turn("a", let, func(t *Turn) { t.Want, t.Writable, t.Refused = "", false, true }), turn("b")},
		want:  Wave{Go: []string{"b"}}, tried: []string{"b"},
	},
	"a withdrawn permit may have been used": {
		turns: []Turn{turn("a", let, wants("old")), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: time.Minute}, tried: []string{"a"},
	},
	"who went back and is ready again is waited for no longer": {
		turns: []Turn{turn("a", letLongAgo, func(t *Turn) { t.Want, t.Copy.ChangedAt = "old", waveTime.Add(-time.Minute) }), turn("b")},
		want:  Wave{Go: []string{"b"}}, tried: []string{"b"},
	},
	"who was passed over and cannot be seen stops nothing": {
		turns: []Turn{turn("a", func(t *Turn) { t.Copy, t.Trial = nil, Trial{Hash: passedOver, Since: waveTime} }), turn("b")},
		want:  Wave{Go: []string{"b"}}, tried: []string{"a", "b"},
	},
	"a change soaks": {
		waves: Waves{Template: "t2", Batch: 2, Deadline: time.Minute, Soak: 10 * time.Minute},
		turns: []Turn{turn("a", took(2*time.Minute)), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 8 * time.Minute}, tried: []string{"a"},
	},
	"a change soaks from when it is ready": {
		waves: Waves{Template: "t2", Batch: 2, Deadline: time.Minute, Soak: 10 * time.Minute},
		turns: []Turn{turn("a", took(time.Hour), func(t *Turn) { t.Copy.Ready.LastTransitionTime = metav1.NewTime(waveTime.Add(-time.Minute)) }), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 9 * time.Minute}, tried: []string{"a"},
	},
	"a change soaks that was taken when the permit was withdrawn": {
		waves: Waves{Template: "t2", Batch: 2, Deadline: time.Minute, Soak: 10 * time.Minute},
		turns: []Turn{turn("a", took(2*time.Minute), func(t *Turn) { t.Copy.Tried, t.Trial = true, Trial{Since: waveTime.Add(-30 * time.Second)} }), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 8 * time.Minute}, tried: []string{"a"},
	},
	"a change soaks in a cluster that left the placement and came back": {
		waves: Waves{Template: "t2", Batch: 2, Deadline: time.Minute, Soak: 10 * time.Minute},
		turns: []Turn{turn("a", took(2*time.Minute), func(t *Turn) { t.Copy.Tried, t.Trial = true, Trial{} }), turn("b")},
		want:  Wave{Held: []string{"b"}, Recheck: 8 * time.Minute}, tried: []string{"a"},
	},
	"a change has soaked": {
		waves: Waves{Template: "t2", Batch: 2, Deadline: time.Minute, Soak: 10 * time.Minute},
		turns: []Turn{turn("a", took(10*time.Minute)), turn("b")},
		want:  Wave{Go: []string{"b"}}, tried: []string{"b"},
	},
	"groups go one after another": {
		waves: Waves{Template: "t2", Batch: 3, Deadline: 10 * time.Minute, Order: stages},
		turns: []Turn{turn("a"), turn("b", staged("canary")), turn("c", staged("test"), took(time.Hour)), turn("d", staged("canary")), turn("e", notReady)},
		want:  Wave{Go: []string{"b", "d"}, Held: []string{"a", "e"}}, tried: []string{"b", "d"},
	},
	"the last group is all others": {
		waves: Waves{Template: "t2", Batch: 3, Deadline: 10 * time.Minute, Order: stages},
		turns: []Turn{turn("a"), turn("b", staged("canary"), took(time.Hour)), turn("c", staged("production")), turn("d", notReady)},
		want:  Wave{Go: []string{"a", "c", "d"}}, tried: []string{"a", "c"},
	},
	"a person has paused it": {
		waves: Waves{Template: "t2", Batch: 2, Deadline: 10 * time.Minute, Paused: true},
		turns: []Turn{turn("a", took(time.Minute)), turn("b"), turn("c", took(time.Hour), notReady, wants("newer")), turn("d", let)},
		want:  Wave{Go: []string{"d"}, Held: []string{"b", "c"}, Recheck: 10 * time.Minute, Paused: true}, tried: []string{"c", "d"},
	},
	"who the change does not concern stops nothing": {
		turns: []Turn{turn("a", notReady, wants("old")), turn("b")},
		want:  Wave{Go: []string{"b"}}, tried: []string{"b"},
	},
}

func TestWaves(t *testing.T) {
	for name, tc := range wavesTests {
		t.Run(name, func(t *testing.T) {
			bounds := waves
			if tc.waves.Template != "" {
				bounds = tc.waves
			}
			got := bounds.Next(tc.turns, waveTime)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Wave{}, "Trials", "Changing", "Done", "Harmed")); diff != "" {
				t.Errorf("Next() (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.tried, slices.Sorted(maps.Keys(got.Trials)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("on trial (-want +got):\n%s", diff)
			}
			slices.Reverse(tc.turns)
			if diff := cmp.Diff(got, bounds.Next(tc.turns, waveTime)); diff != "" {
				t.Errorf("the order of the clusters matters:\n%s", diff)
			}
		})
	}
}

func TestWaves_pass_over_clusters_without_room(t *testing.T) {
	bounds, asked := waves, []string(nil)
	bounds.Room = func(name string) bool {
		asked = append(asked, name)
		return name != "b"
	}
	for name, tc := range map[string]struct {
		turns       []Turn
		want        Wave
		wantChanges []string
	}{
		"the next ones change": {
			turns: []Turn{turn("a", took(time.Minute)), turn("b"), turn("c"), turn("d"), turn("e")},
			want:  Wave{Go: []string{"c", "d"}, Held: []string{"b", "e"}, Crowded: []string{"b"}}, wantChanges: []string{"c", "d"},
		},
		"nobody changes when there is no other": {
			turns: []Turn{turn("b"), turn("x", staged("later"))},
			want:  Wave{Held: []string{"b", "x"}, Crowded: []string{"b"}},
		},
		"a correction needs no room": {
			turns: []Turn{turn("b", took(time.Hour), notReady, wants("newer")), turn("c")},
			want:  Wave{Go: []string{"b"}, Held: []string{"c"}}, wantChanges: []string{"b"},
		},
		"who failed does not change": {
			turns: []Turn{turn("a", took(time.Hour), notReady), turn("b", took(time.Minute), notReady), turn("c")},
			want:  Wave{Held: []string{"c"}, Failed: []string{"a"}, Harmed: []string{"a"}, Halted: true, Recheck: 9 * time.Minute}, wantChanges: []string{"b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked = nil
			bounds.Order = &flotillav1.RolloutOrder{Label: "stage", Values: []string{"test"}}
			for i := range tc.turns {
				if tc.turns[i].Labels == nil {
					staged("test")(&tc.turns[i])
				}
			}
			got := bounds.Next(tc.turns, waveTime)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Wave{}, "Trials", "Changing", "Done")); diff != "" {
				t.Errorf("Next() (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantChanges, got.Changing, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("changing (-want +got):\n%s", diff)
			}
			if slices.Contains(asked, "a") || slices.Contains(asked, "e") {
				t.Errorf("asked for room in %v", asked)
			}
		})
	}
}

func TestTrials_are_recorded_in_few_words(t *testing.T) {
	trials := Trials{}
	for i, name := range []string{"c", "a", "b"} {
		trials[name] = Trial{Hash: "new", Since: waveTime.Add(time.Duration(i/2) * time.Minute)}
	}
	object := &flotillav1.Redis{}
	object.Status.Trials = trials.Record()
	want := []flotillav1.Trial{
		{SpecHash: "new", Since: metav1.NewMicroTime(waveTime), Clusters: []string{"a", "c"}},
		{SpecHash: "new", Since: metav1.NewMicroTime(waveTime.Add(time.Minute)), Clusters: []string{"b"}},
	}
	if diff := cmp.Diff(want, object.Status.Trials); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(trials, TrialsOf(object)); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	if got := TrialOf(object, "b"); got != trials["b"] || TrialOf(object, "d") != (Trial{}) {
		t.Errorf("the trial of b is %+v", got)
	}
}

func TestWaves_steps_come_before_the_batches(t *testing.T) {
	steps := Waves{Steps: []int{2, 3}, Batch: 10}
	for done, want := range map[int]int{0: 2, 1: 1, 2: 3, 4: 1, 5: 10, 100: 10} {
		if got := steps.next(done); got != want {
			t.Errorf("after %d clusters, %d change together, want %d", done, got, want)
		}
	}
	placement := &flotillav1.Placement{Rollout: &flotillav1.Rollout{Steps: []string{"3", "10%", "0"}, Batch: "50%"}}
	if got := NewWaves(placed(placement), "t", 95); !slices.Equal(got.Steps, []int{3, 10, 1}) || got.Batch != 48 {
		t.Errorf("of 95 clusters: %+v", got)
	}
	bounds := waves
	bounds.Steps, bounds.Done = []int{1, 4}, 2
	if got := bounds.Next([]Turn{turn("a"), turn("b"), turn("c"), turn("d")}, waveTime); !slices.Equal(got.Go, []string{"a", "b", "c"}) {
		t.Errorf("of a step of four after the first one, one is done: %v go", got.Go)
	}
}

func TestNewWaves(t *testing.T) {
	for batch, want := range map[string]int{"": 10, "10%": 10, "1%": 1, "3": 3, "100%": 95, "5%": 5} {
		placement := &flotillav1.Placement{Rollout: &flotillav1.Rollout{Batch: batch}}
		if got := NewWaves(placed(placement), "t", 95).Batch; got != want {
			t.Errorf("batch %q of 95 clusters is %d, want %d", batch, got, want)
		}
	}
	if got := NewWaves(placed(&flotillav1.Placement{Rollout: &flotillav1.Rollout{Batch: "100%", Paused: true}}), "t", 5000); got.Batch != 1000 || !got.Paused {
		t.Errorf("of 5000 clusters: %+v", got)
	}
	if diff := cmp.Diff(Waves{Template: "t", Batch: 1, Deadline: 10 * time.Minute}, NewWaves(placed(nil), "t", 3)); diff != "" {
		t.Errorf("without a placement (-want +got):\n%s", diff)
	}
}

// placed returns a hub object of generation 7 whose rollout is under way.
func placed(placement *flotillav1.Placement) *flotillav1.Redis {
	return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: flotillav1.RedisSpec{Placement: placement}}
}

func TestPromotionOf(t *testing.T) {
	settled := metav1.Condition{Type: flotillav1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: flotillav1.ReasonSettled, ObservedGeneration: 7}
	before := settled
	before.ObservedGeneration = 6
	for _, tt := range []struct {
		value     string
		condition metav1.Condition
		want      Promotion
	}{
		{value: "7", want: PromotionSoak},
		{value: "7/full", want: PromotionFull},
		{value: "7/full", condition: before, want: PromotionFull},
		{value: "7", condition: settled},
		{value: "7/full", condition: settled},
		{value: "6"},
		{value: "8/full"},
		{value: "/full"},
		{value: "true"},
		{value: "7/Full"},
		{value: " 7"},
		{value: ""},
	} {
		object := placed(&flotillav1.Placement{Rollout: &flotillav1.Rollout{Batch: "3", SoakSeconds: 60, Order: &flotillav1.RolloutOrder{Label: "stage"}}})
		object.Annotations = map[string]string{flotillav1.AnnotationPromote: tt.value}
		object.Status.Conditions = []metav1.Condition{tt.condition}
		if got := PromotionOf(object); got != tt.want {
			t.Errorf("%q, %+v: got %q, want %q", tt.value, tt.condition, got, tt.want)
		}
		waves := NewWaves(object, "t", 95)
		if soaks := waves.Soak > 0; soaks != (tt.want == PromotionNone) {
			t.Errorf("%q: clusters soak for %s", tt.value, waves.Soak)
		}
		if full := tt.want == PromotionFull; full != (waves.next(0) == maxBatch) || full != (waves.next(maxBatch) == maxBatch) || full != (waves.Order == nil) {
			t.Errorf("%q: %+v", tt.value, waves)
		}
	}
}
