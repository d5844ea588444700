// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import "slices"

// standing is what is known of a key before it is settled.
type standing struct {
	key key
	// value is what is there; nil for nothing.
	value *string
	// item is what was written, and from the pool that it was written for; nil when no pool holds the key.
	item item
	from *view
	// theirs is what others wrote.
	theirs foreign
	// drifted is set when others have replaced or removed what was written.
	drifted bool
}

// standingOf compares what was written with what is there.
func (p *planner) standingOf(k key) standing {
	s := standing{key: k, value: p.live.value(k)}
	s.item, s.from = mergeHolders(p.holders[k], s.value)
	switch {
	case s.from == nil:
		s.theirs = foreign{value: s.value}
	case equalValues(s.value, &s.item.written):
		s.theirs = s.item.theirs.restorable(k)
	default:
		s.drifted = true
		if s.value != nil {
			s.theirs = foreign{value: s.value, over: s.from.name}
		}
	}
	return s
}

// resolve settles one key. The value depends on what others wrote and on the pools that want the key now.
func (p *planner) resolve(k key) {
	if p.frozen[k] {
		// A pool that may not be written for keeps what it has.
		for _, h := range p.holders[k] {
			p.put(h.view, k, h.item)
		}
		p.owe(k, p.wanted[k])
		p.yield(k, p.wanted[k])
		return
	}
	s := p.standingOf(k)
	candidates := p.withoutBlocked(s, p.candidatesFor(s))
	switch {
	case len(candidates) == 0:
		p.letGo(s)
	case !candidates[0].takes(k, s.theirs):
		p.letGo(s)
		p.yield(k, candidates)
	case p.give(s, candidates[0]):
		p.yield(k, candidates[1:])
	default:
		p.owe(k, candidates)
	}
}

// candidatesFor returns the pools that want the key, in order of precedence. A taint that was put on when the node
// joined is wanted as it is, until others change it or take it off.
func (p *planner) candidatesFor(s standing) []candidate {
	candidates := p.wanted[s.key]
	if s.from == nil || s.drifted || !slices.Contains(p.resting[s.key], s.from) {
		return candidates
	}
	at := slices.IndexFunc(candidates, func(c candidate) bool { return p.precedes(s.from, c.view) })
	if at < 0 {
		at = len(candidates)
	}
	return slices.Insert(slices.Clone(candidates), at, candidate{view: s.from, value: s.item.written, resting: true})
}

// precedes reports whether one pool comes before another. The views are in order of precedence.
func (p *planner) precedes(a, b *view) bool {
	return slices.Index(p.views, a) < slices.Index(p.views, b)
}

// withoutBlocked drops leading candidates that want the key only now that the node joins, and cannot have it: once the
// node has joined they do not stand in the way of the next, so they must not now.
func (p *planner) withoutBlocked(s standing, candidates []candidate) []candidate {
	for len(candidates) > 1 && candidates[0].once && !candidates[0].takes(s.key, s.theirs) {
		o := p.outcome(candidates[0].view)
		o.conflicts = append(o.conflicts, s.key.String())
		candidates = candidates[1:]
	}
	return candidates
}

// takes reports whether the pool replaces what others wrote. A value that could not be restored is never replaced.
func (c candidate) takes(k key, theirs foreign) bool {
	if theirs.value == nil || *theirs.value == c.value {
		return true
	}
	return mayHold(k, *theirs.value) && (c.view.overrides() || theirs.over == c.view.name)
}

// give sets the key to the value of the winning pool. It returns false when that has to wait.
func (p *planner) give(s standing, winner candidate) bool {
	o := p.outcome(winner.view)
	given := item{written: winner.value, theirs: s.theirs}
	switch {
	case equalValues(s.value, &winner.value):
		p.put(winner.view, s.key, given)
		return true
	case s.drifted && p.fought != nil && p.fought(s.key):
		o.fights = append(o.fights, s.key.String())
		p.owe(s.key, []candidate{winner})
		p.keep(s, winner)
		return true
	case s.key.noExecute() && p.mayEvict != nil && !p.mayEvict(winner.view):
		o.evictionHeld, p.plan.evictionsHeld = true, true
		p.keep(s, winner)
		return false
	}
	p.live.set(s.key, winner.value)
	p.put(winner.view, s.key, given)
	verb := "change "
	switch {
	case s.drifted:
		verb = "put back "
		o.healed = append(o.healed, s.key.words())
		p.plan.rewrites = append(p.plan.rewrites, s.key)
	case s.value == nil:
		verb = "add "
	case s.from == nil:
		verb = "override "
	}
	o.changes = append(o.changes, verb+s.key.words())
	return true
}

// keep leaves a key that has to wait in the entry that it is in, or gives it to the winner when that pool is on its way out.
func (p *planner) keep(s standing, winner candidate) {
	if s.from == nil {
		return
	}
	keeper := winner.view
	if _, stays := p.after[s.from.name]; stays {
		keeper = s.from
	}
	p.put(keeper, s.key, s.item)
}

// letGo leaves the key to others: what was written becomes what they wrote. Where they have changed it, it is that already.
func (p *planner) letGo(s standing) {
	if s.from == nil || equalValues(s.value, s.theirs.value) {
		return
	}
	o := p.outcome(s.from)
	if s.theirs.value == nil {
		p.live.remove(s.key)
		o.changes = append(o.changes, "remove "+s.key.words())
		return
	}
	p.live.set(s.key, *s.theirs.value)
	o.changes = append(o.changes, "restore "+s.key.words())
}

// owe notes that a taint for joining nodes has not had its turn: the key is not settled yet.
func (p *planner) owe(k key, candidates []candidate) {
	for _, c := range candidates {
		if c.once {
			p.after[c.view.name].owed[k] = true
		}
	}
}

// yield reports a conflict for each pool that wants the key to have another value than it has in the end.
func (p *planner) yield(k key, losers []candidate) {
	value := p.live.value(k)
	for _, loser := range losers {
		if !loser.resting && !equalValues(value, &loser.value) {
			o := p.outcome(loser.view)
			o.conflicts = append(o.conflicts, k.String())
		}
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

// mergeHolders returns the item that says what was written last, going back to what others wrote before any of the
// pools. There is more than one holder only after a pool came back that another one had taken over from.
func mergeHolders(holders []holder, value *string) (item, *view) {
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

// words is the key for people.
func (k key) words() string {
	if k.kind == kindTaint {
		return "taint " + k.name + ":" + string(k.effect)
	}
	return string(k.kind) + " " + k.name
}
