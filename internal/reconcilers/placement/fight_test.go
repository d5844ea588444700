// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func TestReconcile_ownership_fight(t *testing.T) {
	f := newManyMembers(t, 1)
	redis := f.placed()
	f.wantEvents()
	scale := func(replicas int32) func(*flotillav1.Redis) {
		return func(r *flotillav1.Redis) { r.Spec.Replicas = new(replicas) }
	}
	member := apart{f.member, "m-1"}
	replicas := func() int32 { return *f.copyIn(redis, "m-1").Spec.Replicas }
	wantReason := func(want string) {
		t.Helper()
		if got := f.r.Table.Get(f.r.key(redis), "m-1").Reason; got != want {
			t.Errorf("outcome %q, want %q", got, want)
		}
	}

	// An autoscaler in the member insists on its value.
	reverts := 0
	for range 50 {
		placed := copyOf(redis)
		update(f.fixture, member, placed, scale(7))
		f.clock.Step(5 * time.Second)
		f.run(redis)
		if replicas() == 3 {
			reverts++
		}
	}
	if reverts != 3 || replicas() != 7 {
		t.Errorf("%d reverts, %d replicas; want 3 reverts, and then the member's 7", reverts, replicas())
	}
	wantReason(flotillav1.ReasonOwnershipFight)
	f.wantEvents("Normal DriftReverted", "Normal DriftReverted", "Normal DriftReverted", "Warning OwnershipFight m-1: ")

	// Time alone does not restart the reverts, and drift in other fields is still reverted.
	f.clock.Step(time.Hour)
	update(f.fixture, member, copyOf(redis), setImage("redis:7.4"))
	f.run(redis)
	if placed := f.copyIn(redis, "m-1"); placed.Spec.Image == "redis:7.4" || *placed.Spec.Replicas != 7 {
		t.Errorf("the copy has image %q and %d replicas", placed.Spec.Image, *placed.Spec.Replicas)
	}
	wantReason(flotillav1.ReasonOwnershipFight)
	f.wantNothing(redis)

	// Another spec on the hub ends the fight.
	update(f.fixture, f.hub, redis, scale(4))
	f.run(redis)
	if replicas() != 4 {
		t.Errorf("%d replicas after a change on the hub", replicas())
	}
	wantReason("")
}

func TestReconcile_ownership_fight_over_a_second_field(t *testing.T) {
	f := newManyMembers(t, 1)
	redis := f.placed()
	member := apart{f.member, "m-1"}
	keepChanging := func(change func(*flotillav1.Redis)) (reverts int) {
		t.Helper()
		for range 3 * fightLimit {
			update(f.fixture, member, copyOf(redis), change)
			changed := f.copyIn(redis, "m-1").Generation
			f.clock.Step(5 * time.Second)
			f.run(redis)
			if f.copyIn(redis, "m-1").Generation != changed {
				reverts++
			}
		}
		return reverts
	}
	if reverts := keepChanging(func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(7)) }); reverts != fightLimit {
		t.Errorf("%d reverts of the replicas, want %d", reverts, fightLimit)
	}
	if reverts := keepChanging(setImage("redis:7.4")); reverts != fightLimit {
		t.Errorf("%d reverts of the image, want %d", reverts, fightLimit)
	}
	placed := f.copyIn(redis, "m-1")
	if *placed.Spec.Replicas != 7 || placed.Spec.Image != "redis:7.4" {
		t.Errorf("the copy has %d replicas and image %q, want what the member means", *placed.Spec.Replicas, placed.Spec.Image)
	}
	outcome := f.r.Table.Get(f.r.key(redis), "m-1")
	if outcome.Reason != flotillav1.ReasonOwnershipFight || !strings.Contains(outcome.Message, "leaveToMember: [image, replicas]") {
		t.Errorf("outcome %q %q, want an OwnershipFight over both fields", outcome.Reason, outcome.Message)
	}
}

func TestReconcile_ownership_fight_ends_when_the_other_side_agrees(t *testing.T) {
	r := &Reconciler{}
	key := fleet.ObjectKey{Kind: "Redis"}
	now := noon
	for range fightLimit {
		r.fights.reverted(key, "m-1", "h", []string{"spec.replicas"}, now)
		now = now.Add(time.Minute)
	}
	lost := func(hash string, differs ...string) int { return len(r.fights.lost(key, "m-1", hash, differs, now)) }
	if lost("h", "spec.replicas", "spec.image") != 1 || lost("other", "spec.replicas") != 0 {
		t.Error("want the one field lost, for this spec")
	}
	if lost("h") != 0 || lost("h", "spec.replicas") != 1 {
		t.Error("a fight is over as soon as both sides agree once")
	}
	lost("h")
	now = now.Add(fightWindow)
	if lost("h", "spec.replicas") != 0 {
		t.Error("a field that was the same for the whole window is still lost")
	}
	for range 2 * fightLimit {
		r.fights.reverted(key, "m-1", "h", []string{"spec.replicas"}, now)
		now = now.Add(fightWindow / 2)
	}
	if lost("h", "spec.replicas") != 0 {
		t.Error("reverts that are far apart are a fight")
	}
}
