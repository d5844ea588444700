// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// lead decides which clusters may take a change of the hub object now, and returns when to look again. The copy passes
// that wait have said so; while none does there is nothing to decide, and no copy is looked at.
func (r *Reconciler) lead(ctx context.Context, hubObject fleet.Object, state hubState) time.Duration {
	key := r.key(hubObject)
	if hubObject.GetDeletionTimestamp() != nil || state.invalid || !r.Table.Held(key) {
		r.Table.SetLeaves(key, nil)
		return 0
	}
	template, turns := r.turns(ctx, hubObject, state)
	now := r.Clock.Now()
	wave := fleet.NewWaves(hubObject.GetPlacement(), template, len(state.chosen)).Next(turns, now)
	leaves := map[string]fleet.Leave{}
	for _, turn := range turns {
		if _, goes := slices.BinarySearch(wave.Go, turn.Name); !goes {
			continue
		}
		leaves[turn.Name] = fleet.Leave{Hash: turn.Want, At: now}
		if !turn.LetAt.IsZero() {
			leaves[turn.Name] = fleet.Leave{Hash: turn.Want, At: turn.LetAt}
		}
	}
	r.Table.SetLeaves(key, leaves)
	return wave.Recheck
}

// turns reads the chosen clusters that may have a copy, from the members' caches, and returns the name of the change too.
func (r *Reconciler) turns(ctx context.Context, hubObject fleet.Object, state hubState) (string, []fleet.Turn) {
	specs, err := r.specs.Of(r.Kind, hubObject)
	if err != nil {
		// The copy passes refuse it, and roll-up says why.
		return "", nil
	}
	template, err := specs.Template()
	if err != nil {
		return "", nil
	}
	key := r.key(hubObject)
	leaves := r.Table.Leaves(key)
	var turns []fleet.Turn
	for _, name := range hubObject.GetFleetStatus().PlacedIn {
		member, registered := fleet.Find(state.members, name)
		if _, chosen := slices.BinarySearch(state.chosen, name); !chosen || !registered {
			continue
		}
		seen := fleet.Observation{Name: name, Fate: fleet.FateApply, Member: &member, Outcome: r.Table.Get(key, name)}
		seen.Want, seen.WantError = specs.For(name, member.Labels)
		if member.Visible {
			if found := r.cached(ctx, key, name); found != nil {
				seen.Copy = fleet.CopyOf(r.Kind, found)
			}
		}
		turn, ok := fleet.TurnOf(seen, hubObject.GetGeneration())
		if !ok {
			continue
		}
		if leave := leaves[name]; leave.Hash == turn.Want {
			turn.LetAt = leave.At
		}
		turns = append(turns, turn)
	}
	return template, turns
}

// cached returns the copy that a member's cache shows; nil when it shows none of ours, or cannot be read. It is shared with
// the cache: nobody may change it.
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
