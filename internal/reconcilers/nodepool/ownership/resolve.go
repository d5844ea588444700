// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package ownership

import "slices"

// keyState is what is known of a key before it is resolved.
type keyState struct {
	key Key
	// value is what is on the node; nil for nothing.
	value *string
	// item is what was written, for the pool holder; holder is nil if no pool holds the key.
	item   item
	holder *View
	// theirs is what others wrote.
	theirs foreign
	// drifted is set when others have replaced or removed what was written.
	drifted bool
}

// stateOf compares what was written with what is on the node.
func (p *planner) stateOf(k Key) keyState {
	s := keyState{key: k, value: p.draft.get(k)}
	s.item, s.holder = mergeHolders(p.holders[k], s.value)
	switch {
	case s.holder == nil:
		s.theirs = foreign{value: s.value}
	case equalValues(s.value, &s.item.written):
		s.theirs = s.item.theirs.restorable(k)
	default:
		s.drifted = true
		if s.value != nil {
			s.theirs = foreign{value: s.value, over: s.holder.Pool.Name}
		}
	}
	return s
}

// resolve decides the value of one key from what others wrote and from the pools that want the key now.
func (p *planner) resolve(k Key) {
	if p.reserved[k] {
		// A pool in modeKeep keeps what it has, and all others wait.
		for _, h := range p.holders[k] {
			p.record(h.view, k, h.item)
		}
		p.recordOwed(k, p.wanted[k])
		p.reportConflicts(k, p.wanted[k])
		return
	}
	s := p.stateOf(k)
	candidates := p.withoutBlocked(s, p.candidatesFor(s))
	switch {
	case len(candidates) == 0:
		p.restore(s)
	case !candidates[0].mayReplace(k, s.theirs):
		p.restore(s)
		p.reportConflicts(k, candidates)
	case p.assign(s, candidates[0]):
		p.reportConflicts(k, candidates[1:])
	default:
		p.recordOwed(k, candidates)
	}
}

// candidatesFor returns the pools that want the key in order of precedence. A taint that was put on when the node joined
// is wanted as it is until others change or remove it.
func (p *planner) candidatesFor(s keyState) []candidate {
	candidates := p.wanted[s.key]
	if s.holder == nil || s.drifted || !slices.Contains(p.resting[s.key], s.holder) {
		return candidates
	}
	at := slices.IndexFunc(candidates, func(c candidate) bool { return p.precedes(s.holder, c.view) })
	if at < 0 {
		at = len(candidates)
	}
	return slices.Insert(slices.Clone(candidates), at, candidate{view: s.holder, value: s.item.written, resting: true})
}

// precedes reports whether one pool comes before another in precedence.
func (p *planner) precedes(a, b *View) bool {
	return slices.Index(p.Views, a) < slices.Index(p.Views, b)
}

// withoutBlocked drops leading candidates that want the key only because the node joins now, and cannot have it. Once the
// node has joined they no longer block the next candidate, so they must not block it now.
func (p *planner) withoutBlocked(s keyState, candidates []candidate) []candidate {
	for len(candidates) > 1 && candidates[0].once && !candidates[0].mayReplace(s.key, s.theirs) {
		o := p.outcome(candidates[0].view)
		o.Conflicts = append(o.Conflicts, s.key.String())
		candidates = candidates[1:]
	}
	return candidates
}

// mayReplace reports whether the pool replaces what others wrote. A value that could not be restored is never replaced.
func (c candidate) mayReplace(k Key, theirs foreign) bool {
	if theirs.value == nil || *theirs.value == c.value {
		return true
	}
	return validValue(k, *theirs.value) && (c.view.overrides() || theirs.over == c.view.Pool.Name)
}

// assign gives the key the value of the winning pool. It returns false if that has to wait.
func (p *planner) assign(s keyState, winner candidate) bool {
	o := p.outcome(winner.view)
	assigned := item{written: winner.value, theirs: s.theirs}
	switch {
	case equalValues(s.value, &winner.value):
		p.record(winner.view, s.key, assigned)
		return true
	case s.drifted && p.Fought(s.key):
		o.Fights = append(o.Fights, s.key.String())
		p.recordOwed(s.key, []candidate{winner})
		p.keep(s, winner)
		return true
	case s.key.noExecute() && !p.MayEvict(winner.view):
		o.EvictionHeld, p.plan.EvictionsHeld = true, true
		p.keep(s, winner)
		return false
	}
	p.draft.set(s.key, winner.value)
	p.record(winner.view, s.key, assigned)
	verb := "change "
	switch {
	case s.drifted:
		verb = "put back "
		o.Healed = append(o.Healed, s.key)
	case s.value == nil:
		verb = "add "
	case s.holder == nil:
		verb = "override "
	}
	o.Changes = append(o.Changes, verb+s.key.Words())
	return true
}

// keep leaves a key that has to wait in its entry, or moves it to the winner if the pool of that entry is leaving the node.
func (p *planner) keep(s keyState, winner candidate) {
	if s.holder == nil {
		return
	}
	keeper := winner.view
	if _, stays := p.after[s.holder.Pool.Name]; stays {
		keeper = s.holder
	}
	p.record(keeper, s.key, s.item)
}

// restore replaces what was written with what others wrote. Where others have changed it already, nothing is left to do.
func (p *planner) restore(s keyState) {
	if s.holder == nil || equalValues(s.value, s.theirs.value) {
		return
	}
	o := p.outcome(s.holder)
	if s.theirs.value == nil {
		p.draft.remove(s.key)
		o.Changes = append(o.Changes, "remove "+s.key.Words())
		return
	}
	p.draft.set(s.key, *s.theirs.value)
	o.Changes = append(o.Changes, "restore "+s.key.Words())
}

// recordOwed records that the node has not received a taint for joining nodes yet.
func (p *planner) recordOwed(k Key, candidates []candidate) {
	for _, c := range candidates {
		if c.once {
			p.after[c.view.Pool.Name].owed[k] = true
		}
	}
}

// reportConflicts reports a conflict for each pool that wants another value than the key has in the end.
func (p *planner) reportConflicts(k Key, losers []candidate) {
	value := p.draft.get(k)
	for _, loser := range losers {
		if !loser.resting && !equalValues(value, &loser.value) {
			o := p.outcome(loser.view)
			o.Conflicts = append(o.Conflicts, k.String())
		}
	}
}

// record enters what the pool holds into the new record.
func (p *planner) record(v *View, k Key, i item) {
	e, ok := p.after[v.Pool.Name]
	if !ok {
		e = newEntry(p.before[v.Pool.Name].uid)
		p.after[v.Pool.Name] = e
	}
	e.items[k] = i
}

// mergeHolders returns the item that was written last, with what others wrote before the first of the pools. There is more
// than one holder only after a pool came back whose key another pool had taken over.
func mergeHolders(holders []holder, value *string) (item, *View) {
	if len(holders) == 0 {
		return item{}, nil
	}
	at := max(0, slices.IndexFunc(holders, func(h holder) bool { return equalValues(value, &h.item.written) }))
	current, from := holders[at].item, holders[at].view
	rest := slices.Delete(slices.Clone(holders), at, at+1)
	for current.theirs.value != nil {
		i := slices.IndexFunc(rest, func(h holder) bool { return h.item.written == *current.theirs.value })
		if i < 0 {
			break
		}
		current.theirs = rest[i].item.theirs
		rest = slices.Delete(rest, i, i+1)
	}
	return current, from
}
