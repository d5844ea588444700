// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// trialsPace is how long a write that only records that some clusters have passed waits for the next one, while others are on
// trial or wait for room.
const trialsPace = 10 * time.Second

// decision is which clusters may take a change of the hub object.
type decision struct {
	// permits are those that may be granted now. That of a cluster that goes on trial is pending until a pass has seen the
	// trial in the hub object: after a crash nothing else would know that the cluster may have taken the change.
	permits map[string]fleet.Permit
	// trials and change are the new record.
	trials []flotillav1.Trial
	change *flotillav1.Change
	// demote reports whether a promotion has to be removed before the change can be taken back.
	demote bool
	// recheck is the time until the next decision; 0 means that there is none.
	recheck time.Duration
}

// lead decides which clusters may take a change of the hub object. Waiting copy passes have reported so in the Table;
// while none waits and no cluster is on trial there is nothing to decide, and no copy is read.
func (r *Reconciler) lead(ctx context.Context, hubObject fleet.Object, state hubState) decision {
	key, recorded := r.key(hubObject), hubObject.GetFleetStatus().Trials
	same := decision{trials: recorded, change: hubObject.GetFleetStatus().Change}
	idle := !r.Table.Held(key) && len(recorded) == 0 && same.change == nil
	if hubObject.GetDeletionTimestamp() != nil || state.invalid || idle {
		r.Table.Slots.Keep(key, nil)
		return same
	}
	if err := r.Table.Slots.Seed(func(keep func(fleet.ObjectKey, []string)) error { return r.onTrial(ctx, keep) }); err != nil {
		logf.FromContext(ctx).Error(err, "Finding out which objects are changing")
		same.recheck = conflictDelay
		return same
	}
	specs, template, err := r.specsOf(hubObject)
	if err != nil {
		// The copy passes refuse the change, and roll-up reports the cause.
		return same
	}
	hubObject = standing(hubObject, specs, template, state)
	turns, now := r.turns(ctx, hubObject, specs, state), r.Clock.Now()
	waves := fleet.NewWaves(hubObject, template, len(state.chosen))
	waves.Room = func(name string) bool { return r.Table.Slots.Take(key, name) }
	wave, change := waves.Next(turns, now), hubObject.GetFleetStatus().Change
	r.Table.Slots.Keep(key, wave.Changing)
	decided := decision{permits: map[string]fleet.Permit{}, trials: wave.Trials.Record(), recheck: wave.Recheck}
	if waves.Reverts(change, wave) {
		return r.revert(ctx, hubObject, decided, wave, turns)
	}
	decided.change = waves.Follow(change, wave, turns, now)
	for _, turn := range turns {
		if _, goes := slices.BinarySearch(wave.Go, turn.Name); !goes {
			continue
		}
		decided.permits[turn.Name] = wave.Permit(turn, now)
	}
	if passed := wave.Trials.Ended(fleet.TrialsOf(hubObject)); len(wave.Trials)+len(wave.Crowded) > 0 && len(passed) > 0 {
		if rest := r.memory.pass(key, hubObject.GetUID(), passed, now, trialsPace); rest > 0 {
			decided.trials = recorded
			decided.recheck = min(rest, cmp.Or(wave.Recheck, rest))
		}
	}
	return decided
}

// onTrial calls keep with the clusters on trial of each hub object of any kind.
func (r *Reconciler) onTrial(ctx context.Context, keep func(fleet.ObjectKey, []string)) error {
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		list := kind.NewList()
		if err := r.Hub.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing objects of kind %s on the hub: %w", kind.Name, err)
		}
		for _, object := range kind.Items(list) {
			key := fleet.ObjectKey{Kind: kind.Name, Object: client.ObjectKeyFromObject(object)}
			keep(key, slices.Collect(maps.Keys(fleet.TrialsOf(object))))
		}
	}
	return nil
}

// specsOf returns the specs of a hub object and the name of the change that leads to them.
func (r *Reconciler) specsOf(hubObject fleet.Object) (*fleet.Specs, string, error) {
	specs, err := r.specs.Of(r.Kind, hubObject)
	if err != nil {
		return nil, "", err
	}
	template, err := specs.Template()
	return specs, template, err
}

// turns reads the clusters that take part in a rollout from the members' caches.
func (r *Reconciler) turns(ctx context.Context, hubObject fleet.Object, specs *fleet.Specs, state hubState) []fleet.Turn {
	key, reverted := r.key(hubObject), fleet.RevertedChange(hubObject)
	permits, trials, passed := r.Table.Permits(key), fleet.TrialsOf(hubObject), r.memory.passed(key, hubObject.GetUID())
	maps.DeleteFunc(trials, func(name string, trial fleet.Trial) bool { return passed[name] == trial })
	planned := sync.OnceValue(func() fleet.Object {
		planned := hubObject.DeepCopyObject().(fleet.Object)
		planned.GetFleetStatus().Departing = state.departing
		return planned
	})
	var turns []fleet.Turn
	for _, name := range hubObject.GetFleetStatus().PlacedIn {
		seen := fleet.Observation{Name: name, Fate: fleet.FateApply, Outcome: r.Table.Get(key, name), Trial: trials[name]}
		_, chosen := slices.BinarySearch(state.chosen, name)
		member, registered := fleet.Find(state.members, name)
		if seen.Trial == (fleet.Trial{}) && (!chosen || !registered) {
			continue
		}
		var annotations map[string]string
		if registered {
			seen.Member = &member
			seen.Want, seen.WantError = specs.For(name, member.Labels)
			seen.Copy, annotations = r.seen(ctx, key, member)
			if reverted != nil && seen.WantError == nil {
				back := fleet.TakeBack(reverted, seen.Want, seen.Copy)
				seen.Want, seen.Kept = back.Want, back.Kept
			}
		}
		if !chosen {
			seen.Fate = fleet.FateOf(planned(), name, seen.Member, false, annotations)
		}
		turn, ok := fleet.TurnOf(seen, hubObject.GetGeneration())
		if !ok {
			continue
		}
		if permit := permits[name]; permit.Hash == turn.Want && !permit.Pending {
			turn.PermittedAt = permit.At
		}
		if turn.Trial.Hash != turn.Want {
			turn.Sight = r.Table.Revoke(key, name, turn.Trial, turn.Copy)
		}
		turns = append(turns, turn)
	}
	return turns
}

// seen returns the state of the copy in a member and its annotations; nil if there is none or the member is not visible.
func (r *Reconciler) seen(ctx context.Context, key fleet.ObjectKey, member fleet.Member) (*fleet.Copy, map[string]string) {
	if !member.Visible {
		return nil, nil
	}
	found := r.cached(ctx, key, member.Name)
	if found == nil {
		return nil, nil
	}
	return fleet.CopyOf(r.Kind, found), found.GetAnnotations()
}

// cached returns the copy in a member's cache, or nil if there is none or it cannot be read. It is shared with the
// cache and must not be modified.
func (r *Reconciler) cached(ctx context.Context, key fleet.ObjectKey, name string) fleet.Object {
	member, err := r.Members.Member(multicluster.ClusterName(name))
	if err != nil {
		return nil
	}
	found := r.Kind.New()
	if err := member.GetClient().Get(ctx, key.Object, found, client.UnsafeDisableDeepCopy); err != nil || !fleet.IsOurs(found, r.Options.HubID) {
		return nil
	}
	return found
}
