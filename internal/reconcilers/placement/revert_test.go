// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// reverts is a Redis whose failed changes are taken back.
func reverts(r *flotillav1.Redis) {
	r.Spec.Placement.Rollout = &flotillav1.Rollout{Batch: "2", OnHalt: flotillav1.OnHaltRevert}
}

// remember records the present spec of a Redis, as the controller of the history does.
func (f *manyMembers) remember(redis *flotillav1.Redis) {
	f.t.Helper()
	f.get(f.hub, redis)
	specs, err := fleet.NewSpecs(fleet.Redis, redis)
	if err != nil {
		f.t.Fatal(err)
	}
	template, err := specs.Template()
	if err != nil {
		f.t.Fatal(err)
	}
	name, err := fleet.RevisionName(fleet.Redis, redis, template)
	if err != nil {
		f.t.Fatal(err)
	}
	revision, err := fleet.NewRevision(fleet.Redis, redis, name)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.hub.Create(context.Background(), revision); err != nil {
		f.t.Fatal(err)
	}
}

// edit changes the spec and records it.
func (f *manyMembers) edit(redis *flotillav1.Redis, change func(*flotillav1.Redis)) {
	f.t.Helper()
	update(f.fixture, f.hub, redis, change)
	f.remember(redis)
	f.run(redis)
}

// failing returns a Redis whose change of the image is good in m-1 and breaks m-2, while m-3 is changing.
func (f *manyMembers) failing() *flotillav1.Redis {
	f.t.Helper()
	redis := f.placed(setImage(good), reverts)
	f.remember(redis)
	f.edit(redis, setImage(bad))
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, "m-2")
	f.run(redis)
	f.wantImage(redis, bad, "m-1", "m-2", "m-3")
	f.clock.Step(time.Hour)
	return redis
}

func TestRevert_puts_back_what_there_was_where_the_change_was_taken(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.failing()
	generation := redis.Generation
	for range 10 {
		// A restart at any moment loses nothing.
		f.restart()
		f.round(redis)
	}
	f.wantImage(redis, good, f.names...)
	f.get(f.hub, redis)
	if redis.Generation != generation || redis.Spec.Image != bad {
		t.Errorf("the spec of the hub object has changed: generation %d, image %q", redis.Generation, redis.Spec.Image)
	}
	revert := redis.Status.Change.Revert
	if revert == nil || revert.Message != "Not ready in time: m-2, m-3" && !strings.HasPrefix(revert.Message, "Not ready in time: m-2") {
		t.Fatalf("recorded is %+v", redis.Status.Change)
	}
	f.wantEventWith("Warning RolloutReverted", "kubectl flotilla rollout retry redis/cache -n "+redis.Namespace)
	if len(redis.Status.Trials) != 2 {
		f.t.Logf("on trial: %v", redis.Status.Trials)
	}
	f.become(redis, metav1.ConditionTrue, f.names...)
	f.run(redis)
	f.clock.Step(24 * time.Hour)
	f.run(redis)
	f.wantImage(redis, good, f.names...)
	f.get(f.hub, redis)
	if len(redis.Status.Trials) != 0 {
		t.Errorf("on trial are %v", redis.Status.Trials)
	}
	f.wantQuiet(redis)
}

func TestRevert_stays_until_a_person_acts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*flotillav1.Redis)
		goesOn bool
	}{
		"the same is applied again":      {change: setImage(bad)},
		"the limits of the rollout":      {change: func(r *flotillav1.Redis) { r.Spec.Placement.Rollout.MaxUnready = 3 }},
		"onHalt":                         {change: func(r *flotillav1.Redis) { r.Spec.Placement.Rollout = nil }},
		"an override of another cluster": {change: override(`{"replicas":5}`, "m-5")},
		"a label of the object":          {change: func(r *flotillav1.Redis) { r.Labels = map[string]string{"team": "a"} }},
		"a promotion of another generation": {change: func(r *flotillav1.Redis) {
			r.Annotations = map[string]string{flotillav1.AnnotationPromote: fleet.PromotionRetry.Value(r.Generation + 1)}
		}},
		"a correction": {change: setImage(correct), goesOn: true},
		"a person has it tried again": {change: func(r *flotillav1.Redis) {
			r.Annotations = map[string]string{flotillav1.AnnotationPromote: fleet.PromotionRetry.Value(r.Generation)}
		}, goesOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newManyMembers(t, 5)
			redis := f.failing()
			f.run(redis)
			f.become(redis, metav1.ConditionTrue, f.names...)
			f.run(redis)
			f.wantImage(redis, good, f.names...)
			update(f.fixture, f.hub, redis, tc.change)
			f.restart()
			f.run(redis)
			if changed := 5 - len(f.with(redis, image(good))); (changed == 1) != tc.goesOn || changed > 1 {
				t.Errorf("%d clusters have changed", changed)
			}
		})
	}
}

func TestRevert_happens_once(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.failing()
	f.run(redis)
	f.become(redis, metav1.ConditionTrue, f.names...)
	f.run(redis)
	f.wantImage(redis, good, f.names...)
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationPromote: fleet.PromotionRetry.Value(r.Generation)}
	})
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, "m-1")
	for range 3 {
		f.clock.Step(time.Hour)
		f.restart()
		f.run(redis)
		f.wantImage(redis, bad, "m-1")
	}
	// What was right before goes back at once, and nothing of the revert is left.
	update(f.fixture, f.hub, redis, setImage(good))
	f.run(redis)
	f.become(redis, metav1.ConditionTrue, "m-1")
	f.run(redis)
	f.wantImage(redis, good, f.names...)
	f.get(f.hub, redis)
	if redis.Status.Change != nil {
		t.Errorf("recorded is still %+v", redis.Status.Change)
	}
}

func TestRevert_reaches_a_cluster_that_was_cut_off_when_it_returns(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good), reverts)
	f.remember(redis)
	f.edit(redis, setImage(bad))
	f.unreachable("m-1")
	f.clock.Step(time.Hour)
	f.run(redis)
	f.wantImage(redis, bad, "m-1")
	f.get(f.hub, redis)
	if fleet.RevertedChange(redis) == nil {
		t.Fatalf("the change is not taken back: %+v", redis.Status.Change)
	}
	f.restart()
	f.back("m-1")
	f.run(redis)
	f.wantImage(redis, good, f.names...)
}

func TestRevert_does_not_touch_who_had_the_spec_before(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.placed(setImage(good), reverts)
	f.remember(redis)
	f.unreachable("m-3")
	f.edit(redis, setImage(bad))
	for range 4 {
		f.become(redis, metav1.ConditionTrue, f.with(redis, image(bad))...)
		f.run(redis)
	}
	f.wantImage(redis, bad, "m-1", "m-2", "m-4")
	f.clock.Step(30 * 24 * time.Hour)
	f.back("m-3")
	f.run(redis)
	f.become(redis, metav1.ConditionFalse, "m-3")
	f.clock.Step(time.Hour)
	f.run(redis)
	f.wantImage(redis, bad, "m-1", "m-2", "m-4")
	f.wantImage(redis, good, "m-3")
}

func TestRevert_new_copies_get_what_there_was(t *testing.T) {
	f := newManyMembers(t, 4)
	redis := f.failing()
	f.run(redis)
	if err := (apart{f.member, "m-4"}).Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.run(redis)
	f.wantImage(redis, good, f.names...)
}

func TestRevert_needs_a_revision(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.failing()
	if err := f.hub.DeleteAllOf(context.Background(), &appsv1.ControllerRevision{}, client.InNamespace(redis.Namespace)); err != nil {
		t.Fatal(err)
	}
	f.run(redis)
	f.wantImage(redis, bad, "m-1", "m-2", "m-3")
	if f.get(f.hub, redis); redis.Status.Change == nil || redis.Status.Change.Revert != nil {
		t.Errorf("recorded is %+v", redis.Status.Change)
	}
}

func TestRevert_waits_while_a_person_pauses_the_rollout(t *testing.T) {
	f := newManyMembers(t, 5)
	redis := f.failing()
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Rollout.Paused = true })
	f.run(redis)
	f.wantImage(redis, bad, "m-1", "m-2", "m-3")
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Rollout.Paused = false })
	f.run(redis)
	f.wantImage(redis, good, f.names...)
}

// wantEventWith expects an event among those recorded.
func (f *fixture) wantEventWith(parts ...string) {
	f.t.Helper()
	var all []string
	for {
		select {
		case got := <-f.events.Events:
			all = append(all, got)
			found := true
			for _, part := range parts {
				found = found && strings.Contains(got, part)
			}
			if found {
				return
			}
		default:
			f.t.Errorf("no event with %q among\n%s", parts, strings.Join(all, "\n"))
			return
		}
	}
}

// wantQuiet expects that a round of passes writes nothing.
func (f *manyMembers) wantQuiet(redis *flotillav1.Redis) {
	f.t.Helper()
	before := f.writes.Load()
	f.round(redis)
	if written := f.writes.Load() - before; written != 0 {
		f.t.Error(fmt.Sprint(written, " writes, although nothing has changed"))
	}
}
