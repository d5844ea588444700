// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// input is all that the plan for a node depends on.
type input struct {
	node *corev1.Node
	// views are all pools of the member in order of precedence.
	views []*view
	// fought says that a key has been rewritten so often that it is left alone for now; nil means never.
	fought func(key) bool
	// mayEvict says whether the node may get NoExecute taints of a pool now; nil means always.
	mayEvict func(*view) bool
	// now is put on new NoExecute taints.
	now metav1.Time
}

// plan is what is to be written to a node, and why.
type plan struct {
	// labels and annotations are the changes; nil removes.
	labels, annotations map[string]*string
	// taints is the whole list, and only meaningful when taintsChanged is set.
	taints        []corev1.Taint
	taintsChanged bool
	// record is the new annotation, empty for none, and only meaningful when recordChanged is set.
	record        string
	recordChanged bool
	// tooLarge is set when the record would be too large. Nothing is to be written then.
	tooLarge bool
	// joined and left are the pools whose entry is new or dropped.
	joined, left []*view
	// rewrites are the keys that someone else changed and that are put back.
	rewrites []key
	// evictionsHeld is set when a NoExecute taint has to wait for its turn.
	evictionsHeld bool
	// views are the pools that were planned for.
	views    []*view
	outcomes map[string]*outcome
}

// empty reports whether nothing is to be written.
func (p plan) empty() bool {
	return len(p.labels) == 0 && len(p.annotations) == 0 && !p.taintsChanged && !p.recordChanged
}

// healed returns the pools for which something is put back, in order of precedence.
func (p plan) healed() []*view {
	return slices.DeleteFunc(slices.Clone(p.views), func(v *view) bool { o := p.outcomes[v.name]; return o == nil || len(o.healed) == 0 })
}

// outcome is what a plan means for one pool.
type outcome struct {
	// changes are sentences such as "add label example.com/team".
	changes []string
	// conflicts are keys with another value that is not ours to replace; fights those that are left alone for now;
	// refused those that the spec should not have.
	conflicts, fights, refused []string
	// healed are keys that someone else changed and that are put back.
	healed []string
	// loop are the pools, this one among them, that would join and leave the node for ever by each other's labels.
	loop []string
	// recordChanges is set when the entry of the pool changes; evictionHeld when a NoExecute taint waits for its turn.
	recordChanges, evictionHeld, tooLarge bool
}

// settled reports whether nothing is left to do for the pool on the node, conflicts aside.
func (o outcome) settled() bool {
	return len(o.changes) == 0 && len(o.fights) == 0 && len(o.loop) == 0 && len(o.refused) == 0 && !o.recordChanges && !o.evictionHeld && !o.tooLarge
}

// candidate is a pool that wants a key now; holder one whose entry has it.
type (
	candidate struct {
		view  *view
		value string
		// once is set when the value is wanted only because the node joins, resting when it was put on then.
		once, resting bool
	}
	holder struct {
		view *view
		item item
	}
)

// planner collects what is known about a node and settles it key by key.
type planner struct {
	input
	// looping are the pools that would join and leave the node for ever.
	looping       sets.Set[string]
	live          *liveNode
	before, after record
	// order lists the keys of wanted in the order of precedence and of the specs.
	order   []key
	wanted  map[key][]candidate
	holders map[key][]holder
	// resting are the pools that wanted a taint when the node joined, and leave it as it is since.
	resting map[key][]*view
	// frozen are keys that a pool holds which may not be written for.
	frozen map[key]bool
	plan   plan
}

// planNode decides what all pools together want of a node. It is pure, and planning again after the plan has been
// applied gives an empty plan.
func planNode(in input) plan { return planRecorded(in, recordOf(in.node)) }

// planRecorded is planNode for a node whose record has been read.
func planRecorded(in input, before record) plan {
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

// planWithout plans while the pools in looping keep what they have.
func planWithout(in input, before record, looping sets.Set[string]) plan {
	p := &planner{
		input:   in,
		looping: looping,
		live:    newLiveNode(in.node, in.now),
		before:  before,
		after:   record{},
		wanted:  map[key][]candidate{},
		holders: map[key][]holder{},
		resting: map[key][]*view{},
		frozen:  map[key]bool{},
		plan:    plan{views: in.views, outcomes: map[string]*outcome{}},
	}
	p.gather()
	for _, k := range p.keys() {
		p.resolve(k)
	}
	return p.finish()
}

// gather sorts the pools' entries and wishes by key.
func (p *planner) gather() {
	known := map[string]bool{}
	for _, v := range p.views {
		known[v.name] = true
		e, recorded := p.before[v.name]
		st := v.stanceOn(p.node, recorded)
		if st != stanceAside {
			p.plan.outcomes[v.name] = &outcome{}
		}
		if p.looping.Has(v.name) && v.pool.DeletionTimestamp.IsZero() && (st == stanceActive || st == stanceLeaving) {
			st = stanceFrozen
			p.outcome(v).loop = sets.List(p.looping)
		}
		switch st {
		case stanceFrozen:
			if recorded {
				p.after[v.name] = e
			}
			for k := range e.items {
				p.frozen[k] = true
			}
		case stanceLeaving:
			p.hold(v, e)
		case stanceActive:
			p.after[v.name] = newEntry(v.pool.UID)
			p.hold(v, e)
			p.want(v, e, recorded)
		}
	}
	// Absence is never a reason to remove: the entry of a pool that is not there waits for the pool to come back.
	for name, e := range p.before {
		if !known[name] {
			p.after[name] = e
		}
	}
}

// hold adds what an entry says. A key that the pool never had is neither removed nor taken for ours. The entry keeps it
// while the pool lives, because status may only have been lost; a pool that goes takes it along.
func (p *planner) hold(v *view, e entry) {
	for k, i := range e.items {
		if !v.authorised(k) {
			if v.pool.DeletionTimestamp.IsZero() {
				p.put(v, k, i)
			}
			continue
		}
		p.holders[k] = append(p.holders[k], holder{v, i})
	}
}

// want adds the wishes of an active pool. Taints for joining nodes are not put on again.
func (p *planner) want(v *view, e entry, joinedBefore bool) {
	p.outcome(v).refused = v.refused
	for _, w := range v.wishes {
		switch {
		case w.once && joinedBefore && !e.owed[w.key]:
			p.resting[w.key] = append(p.resting[w.key], v)
		default:
			if _, ok := p.wanted[w.key]; !ok {
				p.order = append(p.order, w.key)
			}
			p.wanted[w.key] = append(p.wanted[w.key], candidate{view: v, value: w.value, once: w.once})
		}
	}
}

// keys returns what is to be settled: first what is wanted, so that taints are appended in the order of the specs.
func (p *planner) keys() []key {
	var rest []key
	for k := range p.holders {
		if _, ok := p.wanted[k]; !ok {
			rest = append(rest, k)
		}
	}
	slices.SortFunc(rest, compareKeys)
	return append(p.order, rest...)
}

func (p *planner) outcome(v *view) *outcome { return p.plan.outcomes[v.name] }

// finish compares the records and returns the plan.
func (p *planner) finish() plan {
	for _, v := range p.views {
		before, recorded := p.before[v.name]
		after, records := p.after[v.name]
		switch {
		case records && !recorded:
			p.plan.joined = append(p.plan.joined, v)
		case recorded && !records:
			p.plan.left = append(p.plan.left, v)
		}
		if o := p.outcome(v); o != nil {
			// A node has all of a pool that sets nothing as soon as it matches.
			setsNothing := len(v.wishes)+len(before.items)+len(after.items) == 0
			o.recordChanges = !setsNothing && (records != recorded || !before.equal(after))
		}
	}
	if !p.after.equal(p.before) {
		p.plan.record, p.plan.recordChanged = p.after.encode(), true
	}
	if len(p.plan.record) > maxRecord {
		for _, o := range p.plan.outcomes {
			o.tooLarge = true
		}
		return plan{tooLarge: true, outcomes: p.plan.outcomes}
	}
	p.plan.labels, p.plan.annotations = p.live.labelChanges, p.live.annotationChanges
	p.plan.taints, p.plan.taintsChanged = p.live.taints, p.live.taintsChanged
	return p.plan
}

// patch returns the JSON merge patch of the plan. It is built by hand because the cached Node is trimmed, and it only
// applies to the very Node that was planned for: spec.taints is one atomic list, so a newer one must not be replaced.
func (p plan) patch(node *corev1.Node) ([]byte, error) {
	annotations := maps.Clone(p.annotations)
	if p.recordChanged {
		if annotations == nil {
			annotations = map[string]*string{}
		}
		annotations[flotillav1.AnnotationNodeRecord] = nil
		if p.record != "" {
			annotations[flotillav1.AnnotationNodeRecord] = &p.record
		}
	}
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	if len(p.labels) > 0 {
		metadata["labels"] = p.labels
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	patch := map[string]any{"metadata": metadata}
	if p.taintsChanged {
		// A nil slice is null, which removes the field.
		patch["spec"] = map[string]any{"taints": p.taints}
	}
	return json.Marshal(patch)
}
