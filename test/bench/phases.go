// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Names of the phases in the results.
const (
	phasePropagate   = "a propagate"
	phaseJoin        = "b node joins"
	phaseCondition   = "b condition"
	phaseNumber      = "b number"
	phaseChangeWaves = "c change, default waves"
	phaseChange      = "c change, all at once"
	phaseIdle        = "d idle"
	phaseStartUp     = "e start-up"
	phaseHang        = "f member hangs"
	phaseMemory      = "g memory"
	phaseRemove      = "x removal"
)

// propagate creates the objects, and waits until all members have them and the hub knows.
func (t *turn) propagate(ctx context.Context) error {
	return t.spread(ctx, phasePropagate, func(ctx context.Context, c *Cluster, name string) error {
		return c.client.Create(ctx, t.object(c, name))
	})
}

// change changes one field of all objects: first as waves go by default, then in all members at once.
func (t *turn) change(ctx context.Context) error {
	patch := func(ctx context.Context, c *Cluster, name string) error {
		return patchPool(ctx, c, name, weight(t.weight))
	}
	t.weight++
	if t.system.name != flotilla {
		return t.spread(ctx, phaseChange, patch)
	}
	if err := t.spread(ctx, phaseChangeWaves, patch); err != nil {
		return err
	}
	if err := t.setRollout(ctx, map[string]any{"steps": []string{"100%"}}); err != nil {
		return err
	}
	t.weight++
	return errors.Join(t.spread(ctx, phaseChange, patch), t.setRollout(ctx, nil))
}

func (t *turn) setRollout(ctx context.Context, rollout map[string]any) error {
	names := t.names()
	defer t.settle(ctx)
	return each(ctx, len(names), func(ctx context.Context, i int) error {
		return patchPool(ctx, t.fleet.hub, names[i], map[string]any{"spec": map[string]any{"placement": map[string]any{"rollout": rollout}}})
	})
}

// spread writes every object, on the hub or, for raw, in each member, and measures when the copies have the present weight.
func (t *turn) spread(ctx context.Context, name string, write func(context.Context, *Cluster, string) error) error {
	names := t.names()
	return t.measure(ctx, name, units{objects: t.objects, copies: t.objects * len(t.fleet.members)}, func(ctx context.Context) (values, error) {
		copies := t.observer.expect(keys(t.fleet.members, names), func(c change) []string {
			if c.cluster == t.fleet.hub.name || c.pool == nil || c.pool.Spec.Weight != t.weight {
				return nil
			}
			return []string{c.cluster + "/" + c.name}
		})
		known := t.observer.expect(names, func(c change) []string {
			if c.pool == nil || c.pool.Spec.Weight != t.weight {
				return nil
			}
			return t.known(c)
		})
		into := []*Cluster{t.fleet.hub}
		if t.system.isRaw() {
			into = t.fleet.members
		}
		sent := make([]time.Time, len(names))
		began := time.Now()
		err := each(ctx, len(names)*len(into), func(ctx context.Context, i int) error {
			object, c := i/len(into), into[i%len(into)]
			if i%len(into) == 0 {
				sent[object] = time.Now()
			}
			return write(ctx, c, names[object])
		})
		if err != nil {
			return nil, fmt.Errorf("writing the objects: %w", err)
		}
		at, err := copies.wait(ctx, patience)
		figures := t.copyTimes(names, sent, at)
		figures["last copy s"] = lastOf(at).Sub(began).Seconds()
		if t.counts() {
			at, problem := known.wait(ctx, patience)
			figures["hub knows, last s"] = lastOf(at).Sub(began).Seconds()
			err = errors.Join(err, problem)
		}
		if !t.system.isRaw() {
			t.settle(ctx)
		}
		return figures, err
	})
}

// copyTimes says when objects had their first copy and their last one, counted from when each object was written.
func (t *turn) copyTimes(names []string, sent []time.Time, at map[string]time.Time) values {
	var first, all []float64
	for i, name := range names {
		var earliest, latest time.Time
		for _, c := range t.fleet.members {
			seen := at[c.name+"/"+name]
			if earliest.IsZero() || seen.Before(earliest) {
				earliest = seen
			}
			if seen.After(latest) {
				latest = seen
			}
		}
		first = append(first, max(0, earliest.Sub(sent[i]).Seconds()))
		all = append(all, max(0, latest.Sub(sent[i]).Seconds()))
	}
	return values{"first copy p50 s": quantile(first, 0.5), "all copies p50 s": quantile(all, 0.5), "all copies p99 s": quantile(all, 0.99)}
}

// remove deletes the objects, and waits until they are gone from all clusters.
func (t *turn) remove(ctx context.Context) error {
	names := t.names()
	return t.measure(ctx, phaseRemove, units{objects: t.objects, copies: t.objects * len(t.fleet.members)}, func(ctx context.Context) (values, error) {
		from, expected := []*Cluster{t.fleet.hub}, t.places(names)
		if t.system.isRaw() {
			from, expected = t.fleet.members, keys(t.fleet.members, names)
		}
		gone := t.observer.expect(expected, goneFrom)
		began := time.Now()
		err := each(ctx, len(names)*len(from), func(ctx context.Context, i int) error {
			object := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: names[i/len(from)]}}
			return client.IgnoreNotFound(from[i%len(from)].client.Delete(ctx, object))
		})
		if err != nil {
			return nil, fmt.Errorf("deleting the objects: %w", err)
		}
		at, err := gone.wait(ctx, patience)
		figures := values{"last s": lastOf(at).Sub(began).Seconds()}
		if !t.system.isRaw() {
			t.settle(ctx)
		}
		return figures, err
	})
}

// nothing lets the system be.
func (t *turn) nothing(ctx context.Context) error {
	t.settle(ctx)
	if err := t.awaitNoEvents(ctx); err != nil {
		return err
	}
	return t.measure(ctx, phaseIdle, units{}, func(ctx context.Context) (values, error) {
		pause(ctx, t.idle)
		return values{"RSS MiB": t.system.rss()}, nil
	})
}

// awaitNoEvents waits until the hub got no event for a while: a system may hold them back when there are many.
func (t *turn) awaitNoEvents(ctx context.Context) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		mark, err := t.fleet.hub.mark()
		if err != nil {
			return err
		}
		pause(ctx, t.idle/2)
		count, err := t.fleet.hub.requestsSince(mark, t.system.agent)
		if err != nil || count.events == 0 {
			return err
		}
	}
	return nil
}

func lastOf(at map[string]time.Time) time.Time {
	var last time.Time
	for _, seen := range at {
		if seen.After(last) {
			last = seen
		}
	}
	return last
}
