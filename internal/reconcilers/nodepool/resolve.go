// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import "slices"

// resolve settles one key: it compares what was written, what is there and what is wanted.
func (p *planner) resolve(k key) {
	candidates, holders := p.wanted[k], p.holders[k]
	if p.frozen[k] {
		// A pool that may not be written for keeps what it has.
		for _, h := range holders {
			p.put(h.view, k, h.item)
		}
		p.owe(k, candidates)
		p.yield(k, candidates)
		return
	}
	value, present := p.live.get(k)
	current, from := mergeHolders(holders, value, present)
	if len(candidates) == 0 {
		p.release(k, current, from)
		return
	}
	candidates = p.withoutBlocked(k, candidates, from)
	winner := candidates[0]
	if slices.Contains(p.resting[k], from) && present && value == current.written && p.precedes(from, winner.view) {
		// Put on when the node joined, by a pool that comes first: it is the other pool's only once somebody has taken it off.
		p.put(from, k, current)
		p.yield(k, candidates)
		return
	}
	if from != nil && from != winner.view && !from.authorised(k) {
		from = nil
	}
	if !p.settle(k, winner, current, from != nil) {
		p.owe(k, candidates)
		return
	}
	p.yield(k, candidates[1:])
}

// owe notes that a taint for joining nodes has not had its turn: the key is not settled yet.
func (p *planner) owe(k key, candidates []candidate) {
	for _, c := range candidates {
		if c.once {
			p.after[c.view.name].owed[k] = true
		}
	}
}

// withoutBlocked drops leading candidates that want the key only now that the node joins, and cannot have it: once the
// node has joined they do not stand in the way of the next, so they must not now.
func (p *planner) withoutBlocked(k key, candidates []candidate, from *view) []candidate {
	value, present := p.live.get(k)
	if !present || from != nil && from.authorised(k) {
		return candidates
	}
	for len(candidates) > 1 {
		first := candidates[0]
		if !first.once || value == first.value || first.view.overrides() && mayHold(k, value) {
			break
		}
		o := p.outcome(first.view)
		o.conflicts = append(o.conflicts, k.String())
		candidates = candidates[1:]
	}
	return candidates
}

// precedes reports whether one pool comes before another. The views are in order of precedence.
func (p *planner) precedes(a, b *view) bool {
	return slices.Index(p.views, a) < slices.Index(p.views, b)
}

// settle gives the key the value that the winning pool wants. It returns false when that has to wait.
func (p *planner) settle(k key, winner candidate, current item, held bool) bool {
	value, present := p.live.get(k)
	o := p.outcome(winner.view)
	origin := current.origin()
	if !held {
		origin = nil
		if present {
			origin = &value
		}
	}
	if present && value == winner.value {
		p.put(winner.view, k, itemWith(winner.value, origin))
		return true
	}
	// An earlier value that could not be put back is not replaced.
	if !held && present && (!winner.view.overrides() || !mayHold(k, value)) {
		o.conflicts = append(o.conflicts, k.String())
		return true
	}
	drifted := held && (!present || value != current.written)
	if drifted && p.fought != nil && p.fought(k) {
		o.fights = append(o.fights, k.String())
		p.put(winner.view, k, current)
		return true
	}
	if k.noExecute() && p.mayEvict != nil && !p.mayEvict(winner.view) {
		o.evictionHeld, p.plan.evictionsHeld = true, true
		if held {
			p.put(winner.view, k, current)
		}
		return false
	}
	p.live.set(k, winner.value)
	p.put(winner.view, k, itemWith(winner.value, origin))
	verb := "change "
	switch {
	case drifted:
		verb = "put back "
		o.healed = append(o.healed, k.words())
		p.plan.rewrites = append(p.plan.rewrites, k)
	case !present:
		verb = "add "
	case !held:
		verb = "override "
	}
	o.changes = append(o.changes, verb+k.words())
	return true
}

// yield reports a conflict for each pool that wants the key to have another value than it has in the end.
func (p *planner) yield(k key, losers []candidate) {
	value, present := p.live.get(k)
	for _, loser := range losers {
		if !present || value != loser.value {
			o := p.outcome(loser.view)
			o.conflicts = append(o.conflicts, k.String())
		}
	}
}

// release makes a key as it was that no pool wants any more.
func (p *planner) release(k key, current item, from *view) {
	if from == nil {
		return
	}
	if slices.Contains(p.resting[k], from) {
		p.put(from, k, current)
		return
	}
	if !from.authorised(k) {
		// A key that the pool never had is not removed. The entry stays while the pool lives, because status may only
		// have been lost; a pool that goes takes its entry along.
		if from.pool.DeletionTimestamp.IsZero() {
			p.put(from, k, current)
		}
		return
	}
	value, present := p.live.get(k)
	if !present || value != current.written {
		return
	}
	o, origin := p.outcome(from), current.origin()
	switch {
	case origin == nil || !mayHold(k, *origin):
		p.live.remove(k)
		o.changes = append(o.changes, "remove "+k.words())
	case *origin != value:
		p.live.set(k, *origin)
		o.changes = append(o.changes, "restore "+k.words())
	}
}

// put enters what the pool holds into the new record.
func (p *planner) put(v *view, k key, i item) {
	e, ok := p.after[v.name]
	if !ok {
		e = newEntry(p.before[v.name].uid)
		p.after[v.name] = e
	}
	e.items[k] = i
}

// itemWith returns the item for a value that was written over origin.
func itemWith(written string, origin *string) item {
	if origin != nil && *origin == written {
		return item{written: written, adopted: true}
	}
	return item{written: written, previous: origin}
}

// mergeHolders returns the item that says what is on the node now, going back to the value that was there before any
// of the pools. There is more than one holder only after a pool came back that another one had taken over from.
func mergeHolders(holders []holder, value string, present bool) (item, *view) {
	if len(holders) == 0 {
		return item{}, nil
	}
	at := max(0, slices.IndexFunc(holders, func(h holder) bool { return present && h.item.written == value }))
	current, from := holders[at].item, holders[at].view
	rest := slices.Delete(slices.Clone(holders), at, at+1)
	for origin := current.origin(); origin != nil; origin = current.origin() {
		i := slices.IndexFunc(rest, func(h holder) bool { return h.item.written == *origin })
		if i < 0 {
			break
		}
		current = itemWith(current.written, rest[i].item.origin())
		rest = slices.Delete(rest, i, i+1)
	}
	return current, from
}

// words is the key for people.
func (k key) words() string {
	if k.kind == kindTaint {
		return "taint " + k.name + ":" + string(k.effect)
	}
	return string(k.kind) + " " + k.name
}
