// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// candidate is a pool that wants a key now.
type candidate struct {
	view  *View
	value string
	// once is set when the value is wanted only because the node joins, resting when it was put on then.
	once, resting bool
}

// holder is a pool whose entry in the record has a key.
type holder struct {
	view *View
	item item
}

// planner collects what is known about a node and decides key by key.
type planner struct {
	PlanInput
	// looping are the pools that would join and leave the node forever.
	looping       sets.Set[string]
	draft         *draft
	before, after record
	// order lists the keys of wanted in order of precedence and of the specs.
	order   []Key
	wanted  map[Key][]candidate
	holders map[Key][]holder
	// resting are the pools whose taint was put on when the node joined, and is no longer maintained.
	resting map[Key][]*View
	// reserved are keys held by pools in modeKeep.
	reserved map[Key]bool
	plan     Plan
}

// PlanNode decides what all pools together want of a node. Planning again after the plan has been applied returns an
// empty plan.
func PlanNode(in PlanInput) Plan { return planRecorded(in, recordOf(in.Node)) }

// planRecorded is PlanNode for a node whose record is already parsed. It plans again, with the pools found to loop keeping
// what they have, until no further pools loop.
func planRecorded(in PlanInput, before record) Plan {
	looping := sets.New[string]()
	for {
		p := planWithout(in, before, looping)
		more := loopAfter(in, looping, p)
		if looping.IsSuperset(more) {
			return p
		}
		looping = looping.Union(more)
	}
}

// planWithout plans with the pools in looping keeping what they have.
func planWithout(in PlanInput, before record, looping sets.Set[string]) Plan {
	p := &planner{
		PlanInput: in,
		looping:   looping,
		draft:     newDraft(in.Node, in.Now),
		before:    before,
		after:     record{},
		wanted:    map[Key][]candidate{},
		holders:   map[Key][]holder{},
		resting:   map[Key][]*View{},
		reserved:  map[Key]bool{},
		plan:      Plan{Outcomes: map[string]*Outcome{}},
	}
	p.gather()
	for _, k := range p.keys() {
		p.resolve(k)
	}
	return p.finish()
}

// gather sorts the entries and the desired keys of the pools by key.
func (p *planner) gather() {
	known := map[string]bool{}
	for _, v := range p.Views {
		name := v.Pool.Name
		known[name] = true
		e, recorded := p.before[name]
		m := v.modeOn(p.Node, recorded)
		if m != modeNone {
			p.plan.Outcomes[name] = &Outcome{}
		}
		if p.looping.Has(name) && v.Pool.DeletionTimestamp.IsZero() && (m == modeApply || m == modeRestore) {
			m = modeKeep
			p.outcome(v).Loop = sets.List(p.looping)
		}
		switch m {
		case modeKeep:
			if recorded {
				p.after[name] = e
			}
			for k := range e.items {
				p.reserved[k] = true
			}
		case modeRestore:
			p.addHolder(v, e)
		case modeApply:
			p.after[name] = newEntry(v.Pool.UID)
			p.addHolder(v, e)
			p.addCandidate(v, e, recorded)
		}
	}
	// The entry of an unknown pool stays until the pool comes back: absence is never a reason to remove.
	for name, e := range p.before {
		if !known[name] {
			p.after[name] = e
		}
	}
}

// addHolder adds the keys of an entry. A key that the pool never had is neither removed nor considered held. The entry
// keeps it while the pool exists, because status may have been lost; it goes with the pool.
func (p *planner) addHolder(v *View, e entry) {
	for k, i := range e.items {
		if !v.mayRemove(k) {
			if v.Pool.DeletionTimestamp.IsZero() {
				p.record(v, k, i)
			}
			continue
		}
		p.holders[k] = append(p.holders[k], holder{v, i})
	}
}

// addCandidate adds the desired keys of an active pool. Taints for joining nodes are not put on a second time.
func (p *planner) addCandidate(v *View, e entry, joinedBefore bool) {
	p.outcome(v).Refused = v.refused
	for _, d := range v.desired {
		if d.once && joinedBefore && !e.owed[d.key] {
			p.resting[d.key] = append(p.resting[d.key], v)
			continue
		}
		if _, ok := p.wanted[d.key]; !ok {
			p.order = append(p.order, d.key)
		}
		p.wanted[d.key] = append(p.wanted[d.key], candidate{view: v, value: d.value, once: d.once})
	}
}

// keys returns the keys to resolve, the wanted ones first, so that taints are appended in the order of the specs.
func (p *planner) keys() []Key {
	var rest []Key
	for k := range p.holders {
		if _, ok := p.wanted[k]; !ok {
			rest = append(rest, k)
		}
	}
	slices.SortFunc(rest, compareKeys)
	return append(p.order, rest...)
}

func (p *planner) outcome(v *View) *Outcome { return p.plan.Outcomes[v.Pool.Name] }

// finish compares the records and returns the plan.
func (p *planner) finish() Plan {
	for _, v := range p.Views {
		before, recorded := p.before[v.Pool.Name]
		after, records := p.after[v.Pool.Name]
		switch {
		case records && !recorded:
			p.plan.Joined = append(p.plan.Joined, v.Pool)
		case recorded && !records:
			p.plan.Left = append(p.plan.Left, v.Pool)
		}
		if o := p.outcome(v); o != nil {
			// For a pool that sets nothing, a node that matches is up to date without being recorded.
			setsNothing := len(v.desired)+len(before.items)+len(after.items) == 0
			o.recordChanges = !setsNothing && (records != recorded || !before.equal(after))
		}
	}
	if !p.after.equal(p.before) {
		p.plan.record, p.plan.recordChanged = p.after.encode(), true
	}
	if len(p.plan.record) > maxRecord {
		for _, o := range p.plan.Outcomes {
			o.TooLarge = true
		}
		return Plan{Outcomes: p.plan.Outcomes}
	}
	p.plan.labels, p.plan.annotations = p.draft.labelChanges, p.draft.annotationChanges
	p.plan.taints, p.plan.taintsChanged = p.draft.taints, p.draft.taintsChanged
	return p.plan
}
