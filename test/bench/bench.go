// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// writers is how many requests the driver has under way at once.
	writers = 16
	// settled is how long nothing may change before the costs of a phase are complete.
	settled = 2 * time.Second
	// patience is how long a phase waits for what it expects.
	patience = 5 * time.Minute
)

// values are the figures of a phase by name; the names end in their unit.
type values map[string]float64

// sample is what one phase gave for one system in one round.
type sample struct {
	Round  int    `json:"round"`
	System string `json:"system"`
	Phase  string `json:"phase"`
	Values values `json:"values"`
	// Problem is what the phase waited for in vain.
	Problem string `json:"problem,omitempty"`
}

// bench runs the phases and collects what they give.
type bench struct {
	fleet    *Fleet
	observer *observer
	systems  []*System
	objects  int
	changes  int // of a status phase
	idle     time.Duration
	rounds   int
	phases   map[string]bool // none is all
	say      printer
	samples  []sample

	stopWatching context.CancelFunc
}

// units is what the counts of a phase are divided by. 0 leaves a count out.
type units struct{ objects, copies, changes int }

// run runs all rounds. Every system has a turn in each; the order moves on by one.
func (b *bench) run(ctx context.Context) error {
	for round := 1; round <= b.rounds; round++ {
		for i := range b.systems {
			system := b.systems[(i+round-1)%len(b.systems)]
			if err := b.turn(ctx, system, round); err != nil {
				return fmt.Errorf("%s, round %d: %w", system.name, round, err)
			}
		}
	}
	return nil
}

// turn runs the phases for one system. No other one runs meanwhile.
func (b *bench) turn(ctx context.Context, system *System, round int) (err error) {
	b.say.title(fmt.Sprintf("round %d of %d: %s", round, b.rounds, system.name))
	defer func() { err = errors.Join(err, system.stop()) }()
	b.fleet.hub = system.hub
	t := &turn{bench: b, system: system, round: round}
	if err := b.clean(ctx); err != nil {
		return err
	}
	if err := t.ready(ctx); err != nil {
		return err
	}
	for _, phase := range t.all() {
		if phase.needed || len(b.phases) == 0 || b.phases[phase.letter] {
			if err := phase.run(ctx); err != nil {
				return fmt.Errorf("phase %s: %w", phase.letter, err)
			}
		}
	}
	return nil
}

// phase is one of those that a turn runs.
type phase struct {
	letter string
	// needed is whether later phases build on it.
	needed bool
	run    func(context.Context) error
}

// turn is the turn of a system.
type turn struct {
	*bench
	system *System
	round  int
	// weight is the field of the objects that phases change.
	weight int32
}

func (t *turn) all() []phase {
	phases := []phase{{"a", true, t.propagate}}
	if !t.system.isRaw() {
		phases = append(phases, phase{"b", false, t.status})
	}
	phases = append(phases, phase{"c", false, t.change})
	if !t.system.isRaw() {
		// What does not depend on chance is measured once.
		if t.round == 1 {
			phases = append(phases, phase{"d", false, t.nothing})
		}
		phases = append(phases, phase{"e", false, t.startUp})
		if t.round == 1 {
			phases = append(phases, phase{"f", false, t.hang})
		}
	}
	phases = append(phases, phase{"x", false, t.remove})
	// Karmada keeps its members in another way, and the rest of it is not one process.
	if !t.system.isRaw() && t.system.name != karmada && t.round == 1 {
		phases = append(phases, phase{"g", false, t.memory})
	}
	return phases
}

// measure runs a phase and notes its figures, with what it cost until nothing changed any more.
func (t *turn) measure(ctx context.Context, name string, per units, work func(context.Context) (values, error)) error {
	marks := map[*Cluster]*auditMark{}
	for _, c := range t.fleet.all() {
		mark, err := c.mark()
		if err != nil {
			return err
		}
		marks[c] = mark
	}
	t.say.began(t.system.name, name)
	before := t.fleet.usage(t.system)
	figures, problem := work(ctx)
	used := t.fleet.usage(t.system).since(before)
	elapsed := used.at.Sub(before.at).Seconds()
	var hub, members requests
	for c, mark := range marks {
		count, err := c.requestsSince(mark, t.system.agent)
		if err != nil {
			return err
		}
		if c == t.fleet.hub {
			hub.add(count)
		} else {
			members.add(count)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s := sample{Round: t.round, System: t.system.name, Phase: name, Values: values{
		"elapsed s": elapsed, "system CPU s": used.system, "hub CPU s": used.hub, "members CPU s": used.members,
		"system CPU %": 100 * used.system / elapsed,
		"other cores":  max(0, used.machine-used.system-used.hub-used.members-used.driver) / elapsed,
		"load":         loadAverage(),
		"hub writes":   float64(hub.writes), "hub leases": float64(hub.leases), "hub events": float64(hub.events),
		"hub reads": float64(hub.reads), "hub relists": float64(hub.relists), "hub conflicts": float64(hub.conflicts),
		"member writes": float64(members.writes), "member leases": float64(members.leases), "member events": float64(members.events),
		"member reads": float64(members.reads), "member relists": float64(members.relists), "member conflicts": float64(members.conflicts),
	}}
	s.Values["API servers CPU s"] = used.hub + used.members
	s.Values["writes"], s.Values["events"] = float64(hub.writes+members.writes), float64(hub.events+members.events)
	s.Values["reads"] = float64(hub.reads + members.reads)
	share(s.Values, per.objects, "an object", "hub writes", "hub events", "hub reads")
	share(s.Values, per.copies, "a copy", "reads", "member writes", "member events", "member reads")
	share(s.Values, per.changes, "a change", "hub writes", "member writes")
	for key, value := range figures {
		if !math.IsNaN(value) {
			s.Values[key] = value
		}
	}
	if problem != nil {
		s.Problem = problem.Error()
	}
	t.samples = append(t.samples, s)
	t.say.ended(s)
	return nil
}

func share(v values, by int, unit string, names ...string) {
	for _, name := range names {
		if by > 0 {
			v[name+" "+unit] = v[name] / float64(by)
		}
	}
}

// settle waits until the costs of what was done are complete.
func (t *turn) settle(ctx context.Context) { t.observer.quiet(ctx, settled, time.Minute) }

// all returns the hub of this turn and the members.
func (f *Fleet) all() []*Cluster { return append([]*Cluster{f.hub}, f.members...) }

// everything returns all clusters, those that have no part in this turn included.
func (f *Fleet) everything() []*Cluster { return append(slices.Clone(f.hubs), f.members...) }

// ready starts a system and returns when it works.
func (t *turn) ready(ctx context.Context) error {
	if err := t.system.start(); err != nil || t.system.isRaw() {
		return err
	}
	if err := t.warmUp(ctx); err != nil {
		return fmt.Errorf("waiting until %s works (it logs to %s): %w", t.system.name, t.system.logs(), err)
	}
	return nil
}

// warmUp places one object everywhere, and removes it.
func (t *turn) warmUp(ctx context.Context) error {
	const name = "warm-up"
	placed := t.observer.expect(keys(t.fleet.members, []string{name}), func(c change) []string {
		if c.pool == nil {
			return nil
		}
		return []string{c.cluster + "/" + c.name}
	})
	if err := t.fleet.hub.client.Create(ctx, t.object(t.fleet.hub, name)); err != nil {
		return fmt.Errorf("creating the first object: %w", err)
	}
	if _, err := placed.wait(ctx, patience); err != nil {
		return fmt.Errorf("placing the first object: %w", err)
	}
	t.settle(ctx)
	gone := t.observer.expect(t.places([]string{name}), goneFrom)
	if err := t.fleet.hub.client.Delete(ctx, pool(name, 0)); err != nil {
		return fmt.Errorf("deleting the first object: %w", err)
	}
	if _, err := gone.wait(ctx, patience); err != nil {
		return fmt.Errorf("removing the first object: %w", err)
	}
	t.settle(ctx)
	return nil
}

// clean removes what an earlier turn left, without anybody's help.
func (b *bench) clean(ctx context.Context) error {
	for _, c := range b.fleet.all() {
		pools := &flotillav1.NodePoolList{}
		if err := c.client.List(ctx, pools); err != nil {
			return fmt.Errorf("listing what is left in %q: %w", c.name, err)
		}
		err := each(ctx, len(pools.Items), func(ctx context.Context, i int) error {
			pool := &pools.Items[i]
			noFinalizers := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			if err := c.client.Patch(ctx, pool, noFinalizers); err != nil {
				return client.IgnoreNotFound(err)
			}
			return client.IgnoreNotFound(c.client.Delete(ctx, pool))
		})
		if err != nil {
			return fmt.Errorf("removing what is left in %q: %w", c.name, err)
		}
		for b.observer.count(c.name) > 0 && pause(ctx, 20*time.Millisecond) {
			continue
		}
	}
	return ctx.Err()
}

// watch has a new observer watch the fleet.
func (b *bench) watch(ctx context.Context) error {
	if b.stopWatching != nil {
		b.stopWatching()
	}
	ctx, b.stopWatching = context.WithCancel(ctx)
	var err error
	b.observer, err = observe(ctx, b.fleet)
	return err
}

// each calls a function for 0 to n-1, several at once.
func each(ctx context.Context, n int, call func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return call(ctx, i) })
	}
	return group.Wait()
}

// places are the keys of objects in all clusters.
func (b *bench) places(names []string) []string { return keys(b.fleet.all(), names) }

func keys(clusters []*Cluster, names []string) []string {
	var keys []string
	for _, c := range clusters {
		for _, name := range names {
			keys = append(keys, c.name+"/"+name)
		}
	}
	return slices.Clip(keys)
}
