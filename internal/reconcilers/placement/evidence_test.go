// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// override sets fields in the named members.
func override(patch string, names ...string) func(*flotillav1.Redis) {
	return func(r *flotillav1.Redis) {
		r.Spec.Placement.Overrides = []flotillav1.Override{{Clusters: names, Patch: &apiextensionsv1.JSON{Raw: []byte(patch)}}}
	}
}

// halted returns a Redis whose change of the image has broken m-1.
func (f *manyMembers) halted() *flotillav1.Redis {
	f.t.Helper()
	redis := f.placed(setImage(good))
	update(f.fixture, f.hub, redis, setImage(bad))
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, "m-1")
	f.clock.Step(time.Hour)
	f.run(redis)
	f.wantImage(redis, bad, "m-1")
	return redis
}

func TestWaves_a_change_that_cuts_clusters_off_reaches_one(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.halted()
	f.unreachable("m-1")
	for range 3 {
		f.run(redis)
		f.clock.Step(time.Hour)
		f.wantImage(redis, bad, "m-1")
		f.restart()
	}
	// It comes back as broken as it was, and then well.
	f.back("m-1")
	f.run(redis)
	f.wantImage(redis, bad, "m-1")
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.wantImage(redis, bad, "m-1", "m-2")
}

func TestWaves_a_cluster_that_is_cut_off_at_once_is_not_forgotten(t *testing.T) {
	f := newManyMembers(t, 3)
	redis := f.placed(setImage(good))
	update(f.fixture, f.hub, redis, setImage(bad))
	for range 10 {
		f.round(redis)
		if len(f.with(redis, image(bad))) > 0 {
			break
		}
	}
	// Nothing is seen of it any more, and the process ends.
	f.unreachable("m-1")
	f.restart()
	for range 3 {
		f.run(redis)
		f.wantImage(redis, bad, "m-1")
		f.clock.Step(time.Hour)
	}
}

func TestWaves_an_edit_for_another_cluster_ends_no_halt(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.halted()
	for i := range 2 {
		update(f.fixture, f.hub, redis, override(fmt.Sprintf(`{"replicas":%d}`, 4+i), "m-5"))
		f.run(redis)
		f.wantImage(redis, bad, "m-1")
	}
	// Whoever a label concerns does not take it either.
	f.restart()
	f.run(redis)
	f.wantImage(redis, bad, "m-1")
}

func TestWaves_an_edit_that_is_taken_back_holds_nobody_up(t *testing.T) {
	for name, until := range map[string]func(*manyMembers, *flotillav1.Redis){
		"before its first cluster has a permit": func(*manyMembers, *flotillav1.Redis) {},
		"before its first cluster has taken it": func(f *manyMembers, redis *flotillav1.Redis) { f.pass(redis, "") },
		"when its first cluster has taken it":   func(f *manyMembers, redis *flotillav1.Redis) { f.round(redis) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newManyMembers(t, 2)
			redis := f.placed(setImage(good))
			update(f.fixture, f.hub, redis, setImage(bad))
			f.round(redis)
			until(f, redis)
			f.become(redis, metav1.ConditionTrue, f.with(redis, image(bad))...)
			for _, next := range []string{good, correct} {
				update(f.fixture, f.hub, redis, setImage(next))
				f.run(redis)
				f.become(redis, metav1.ConditionTrue, f.with(redis, image(next))...)
			}
			f.run(redis)
			f.wantImage(redis, correct, f.names...)
		})
	}
}

func TestWaves_a_cluster_that_was_seen_ready_and_vanishes_stops_nothing(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.placed(setImage(good), func(r *flotillav1.Redis) { r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "3"} })
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	for _, name := range f.names[:4] {
		f.become(redis, metav1.ConditionTrue, name)
		f.run(redis)
		if name == "m-3" {
			f.unreachable(name)
			f.run(redis)
		}
	}
	f.wantImage(redis, correct, f.names...)
}

func TestWaves_a_correction_goes_first_to_whom_the_change_broke(t *testing.T) {
	for name, broken := range map[string][]string{"one of two": {"m-2"}, "half of four": {"m-2", "m-3"}} {
		t.Run(name, func(t *testing.T) {
			f := newManyMembers(t, 2*len(broken))
			redis := f.placed(setImage(good), func(r *flotillav1.Redis) {
				r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "2", MaxUnready: 1}
			})
			f.become(redis, metav1.ConditionFalse, "m-1")
			update(f.fixture, f.hub, redis, setImage(bad))
			for range broken {
				f.run(redis)
				f.become(redis, metav1.ConditionFalse, f.with(redis, image(bad))...)
				f.clock.Step(time.Hour)
			}
			if len(broken) > 1 {
				f.wantImage(redis, bad, broken...)
			}
			update(f.fixture, f.hub, redis, setImage(correct))
			f.run(redis)
			f.wantImage(redis, correct, "m-2")
		})
	}
}

func TestWaves_who_was_never_ready_does_not_lead(t *testing.T) {
	f := newManyMembers(t, 3)
	redis := f.placed(setImage(good))
	update(f.fixture, f.hub, redis, override(`{"replicas":4}`, "m-1"))
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, "m-1")
	// It has not been ready since it has a spec of its own, and a person has accepted that.
	f.clock.Step(time.Hour)
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, "m-1")
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	f.wantImage(redis, correct, "m-2")
}

func TestWaves_who_was_never_ready_does_not_block(t *testing.T) {
	f := newManyMembers(t, 2)
	redis := f.newRedis(setImage(good))
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, f.names...)
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	f.wantImage(redis, correct, "m-1")
	f.become(redis, metav1.ConditionFalse, f.names...)
	f.clock.Step(time.Hour)
	f.run(redis)
	f.wantImage(redis, correct, f.names...)
}

func TestWaves_a_hiccup_after_the_change_halts_nothing(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good))
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	f.wantImage(redis, correct, "m-1")
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.wantImage(redis, correct, "m-1", "m-2")

	// m-1 was ready twenty minutes ago, and a Pod of it is drained.
	f.clock.Step(20 * time.Minute)
	f.become(redis, metav1.ConditionTrue, "m-2")
	f.become(redis, metav1.ConditionFalse, "m-1")
	f.run(redis)
	f.wantImage(redis, correct, "m-1", "m-2", "m-3")
}

func TestWaves_a_change_of_one_member_waits_for_no_other(t *testing.T) {
	f := newManyMembers(t, 3)
	redis := f.placed(setImage(good), func(r *flotillav1.Redis) {
		r.Spec.Placement.Overrides = []flotillav1.Override{{
			ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"size": "large"}},
			Patch:           &apiextensionsv1.JSON{Raw: []byte(`{"image":"` + correct + `"}`)},
		}}
	})
	f.clock.Step(time.Hour)
	f.become(redis, metav1.ConditionFalse, "m-1")
	f.directory.Change("m-2", func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "eu", "size": "large"} })
	f.run(redis)
	f.wantImage(redis, correct, "m-2")
}

func TestWaves_pausing_reaches_all_at_once(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.halted()
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Paused = true })
	f.run(redis)
	if paused := f.with(redis, func(r *flotillav1.Redis) bool { return r.Spec.Paused }); len(paused) != 4 {
		t.Errorf("only %v are paused", paused)
	}
	f.become(redis, metav1.ConditionTrue, f.names[1:]...)
	f.become(redis, metav1.ConditionFalse, "m-1")

	// To go on is a change, and m-1 is as broken as it was.
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Paused = false })
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, "m-1")
	f.clock.Step(time.Hour)
	f.run(redis)
	if active := f.with(redis, func(r *flotillav1.Redis) bool { return !r.Spec.Paused }); fmt.Sprint(active) != "[m-1]" {
		t.Errorf("%v are no longer paused", active)
	}
	update(f.fixture, f.hub, redis, setImage(good))
	f.run(redis)
	f.wantActive(redis, good, f.names...)
}

func TestWaves_canaries_first_and_then_a_soak(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good), func(r *flotillav1.Redis) {
		order := &flotillav1.RolloutOrder{Label: "stage", Values: []string{"canary"}}
		r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "3", SoakSeconds: 1800, Order: order}
	})
	f.directory.Change("m-3", func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "eu", "stage": "canary"} })
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	f.wantImage(redis, correct, "m-3")
	f.become(redis, metav1.ConditionTrue, "m-3")
	f.clock.Step(29 * time.Minute)
	f.run(redis)
	f.wantImage(redis, correct, "m-3")
	f.restart()
	f.clock.Step(time.Minute)
	f.run(redis)
	f.wantImage(redis, correct, f.names...)
}

// TestWaves_a_person_promotes_a_rollout has two changes of the same object, of which only the second is promoted fully.
func TestWaves_a_person_promotes_a_rollout(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.placed(setImage(good), func(r *flotillav1.Redis) {
		r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "2", SoakSeconds: 1800}
	})
	promote := func(promotion fleet.Promotion) func(*flotillav1.Redis) {
		return func(r *flotillav1.Redis) {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, flotillav1.AnnotationPromote, promotion.Value(r.Generation))
		}
	}
	promoted := func() string {
		f.get(f.hub, redis)
		return redis.Annotations[flotillav1.AnnotationPromote]
	}
	settle := func() {
		t.Helper()
		f.get(f.hub, redis)
		apimeta.SetStatusCondition(&redis.Status.Conditions, metav1.Condition{
			Type: flotillav1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: flotillav1.ReasonSettled, ObservedGeneration: redis.Generation,
		})
		if err := f.hub.Status().Update(t.Context(), redis); err != nil {
			t.Fatal(err)
		}
	}
	update(f.fixture, f.hub, redis, promote(fleet.PromotionSoak))
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	if got := promoted(); got != "" {
		t.Errorf("the promotion of another generation is still there: %s", got)
	}
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.wantImage(redis, correct, "m-1")

	update(f.fixture, f.hub, redis, promote(fleet.PromotionSoak))
	f.run(redis)
	f.wantImage(redis, correct, "m-1", "m-2", "m-3")
	f.restart()
	f.become(redis, metav1.ConditionTrue, "m-2")
	f.run(redis)
	f.wantImage(redis, correct, "m-1", "m-2", "m-3")
	f.become(redis, metav1.ConditionTrue, "m-3")
	f.run(redis)
	f.wantImage(redis, correct, f.names...)
	f.become(redis, metav1.ConditionTrue, f.names...)
	if got := promoted(); got == "" {
		t.Error("the promotion has gone before the rollout is over")
	}
	settle()
	f.run(redis)
	if got := promoted(); got != "" {
		t.Errorf("the promotion outlives the rollout: %s", got)
	}

	update(f.fixture, f.hub, redis, setImage(bad))
	f.run(redis)
	update(f.fixture, f.hub, redis, promote(fleet.PromotionFull))
	f.run(redis)
	f.wantImage(redis, bad, "m-1")
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.wantImage(redis, bad, f.names...)

	// What failed on trial is corrected one by one, however it got there. m-1 was seen ready.
	f.become(redis, metav1.ConditionFalse, f.names...)
	f.clock.Step(time.Hour)
	update(f.fixture, f.hub, redis, setImage("registry.example.com/redis:3"))
	f.run(redis)
	f.wantImage(redis, "registry.example.com/redis:3", "m-2")
}

func TestWaves_a_person_pauses_a_rollout(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good), func(r *flotillav1.Redis) { r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "2"} })
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	pause := func(pause bool) func(*flotillav1.Redis) {
		return func(r *flotillav1.Redis) { r.Spec.Placement.Rollout.Paused = pause }
	}
	update(f.fixture, f.hub, redis, pause(true))
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.restart()
	f.run(redis)
	f.wantImage(redis, correct, "m-1")
	update(f.fixture, f.hub, redis, pause(false))
	f.run(redis)
	f.wantImage(redis, correct, "m-1", "m-2", "m-3")

	// To go back needs no trial, and so no permission.
	update(f.fixture, f.hub, redis, setImage(good))
	update(f.fixture, f.hub, redis, pause(true))
	f.run(redis)
	f.wantImage(redis, good, f.names...)
}

func (f *manyMembers) wantActive(redis *flotillav1.Redis, want string, names ...string) {
	f.t.Helper()
	got := f.with(redis, func(r *flotillav1.Redis) bool { return !r.Spec.Paused && r.Spec.Image == want })
	if fmt.Sprint(got) != fmt.Sprint(names) {
		f.t.Errorf("image %q is active in %v, want it in %v", want, got, names)
	}
}
