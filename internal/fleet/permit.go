// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Permit allows a cluster to take a change: the spec with that hash may be applied to its copy.
type Permit struct {
	Hash string
	// At is when the permit was granted.
	At time.Time
	// Pending reports whether the cluster may not use the permit: its trial is being recorded, or the permit was revoked.
	Pending bool
	// Sent is what is known about the last change that the cluster took with a permit, and Stored the resourceVersion with
	// which its copy shows it.
	Sent   Sent
	Stored string
}

// Sent is what is known about a change that was sent to a member.
type Sent int

const (
	// SentNothing means that there was none.
	SentNothing Sent = iota
	// SentUnanswered means that the answer is on its way.
	SentUnanswered
	// SentStored means that the member has stored it.
	SentStored
	// SentUnknown means that it is not known whether the member has stored it.
	SentUnknown
)

// Sight is whether the copy of a cluster shows a change that may have been sent to it.
type Sight int

const (
	// SightUnknown means that nobody knows. What an earlier process has sent is not known.
	SightUnknown Sight = iota
	// SightSoon means that it will show it soon.
	SightSoon
	// SightClear means that the copy shows whatever was sent.
	SightClear
)

// Permit returns the permit for the cluster of a turn that goes. It is pending while the trial of the cluster has to be
// recorded.
func (w Wave) Permit(turn Turn, now time.Time) Permit {
	permit := Permit{Hash: turn.Want, At: now}
	switch trial := w.Trials[turn.Name]; {
	case trial.Hash == turn.Want && trial != turn.Trial:
		permit.At, permit.Pending = trial.Since, true
		if turn.Doubtful() {
			permit.Sent = SentUnknown
		}
	case trial.Hash == turn.Want:
		permit.At = trial.Since
	case !turn.PermittedAt.IsZero():
		permit.At = turn.PermittedAt
	}
	return permit
}

// same reports whether two permits are one, whatever became of it.
func (p Permit) same(other Permit) bool { return p.Hash == other.Hash && p.At.Equal(other.At) }

// covers reports whether the permit was granted for a trial.
func (p Permit) covers(trial Trial) bool { return p.same(Permit{Hash: trial.Hash, At: trial.Since}) }

// sight reports whether the copy shows the change that is on trial, if it was sent.
func (p Permit) sight(trial Trial, seen *Copy) Sight {
	switch {
	case !p.covers(trial), p.Sent == SentUnknown:
		return SightUnknown
	case p.Sent == SentNothing:
		return SightClear
	case p.Sent == SentUnanswered, seen == nil:
		return SightSoon
	}
	order, err := resourceversion.CompareResourceVersion(seen.Version, p.Stored)
	switch {
	case err != nil:
		return SightUnknown
	case order < 0:
		return SightSoon
	}
	return SightClear
}

// answered returns the permit with the result of a change that was sent.
func (p Permit) answered(result Sent, version string) Permit {
	switch {
	case result == SentStored && p.Sent != SentNothing:
		p.Sent, p.Stored = SentStored, version
	case p.Sent != SentUnanswered:
	case result == SentNothing && p.Stored != "":
		// What was stored before it may still be on its way to the cache.
		p.Sent = SentStored
	default:
		p.Sent = result
	}
	return p
}

// after returns a permit that follows another one of the same cluster.
func (p Permit) after(before Permit) Permit {
	if before.Sent != SentNothing {
		p.Sent, p.Stored = before.Sent, before.Stored
	}
	return p
}

// Held reports whether a copy of a hub object waits for its turn.
func (t *Table) Held(key ObjectKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[key] > 0
}

// Permits returns the permits of a hub object by cluster.
func (t *Table) Permits(key ObjectKey) map[string]Permit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.permits[key])
}

// Use reports whether a cluster has a permit for the spec with that hash. The caller is about to apply it.
func (t *Table) Use(key ObjectKey, clusterName, hash string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	permit, found := t.permits[key][clusterName]
	if !found || permit.Hash != hash || permit.Pending {
		return false
	}
	if permit.Sent != SentUnknown {
		permit.Sent = SentUnanswered
	}
	t.permits[key][clusterName] = permit
	return true
}

// Answered records the result of a change that was sent, and the resourceVersion of the copy if it was stored.
func (t *Table) Answered(key ObjectKey, clusterName string, result Sent, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	permit, found := t.permits[key][clusterName]
	if !found {
		return
	}
	t.permits[key][clusterName] = permit.answered(result, version)
}

// Revoke withdraws the permit of a cluster for the change that is on trial, and reports whether the copy shows it.
func (t *Table) Revoke(key ObjectKey, clusterName string, trial Trial, seen *Copy) Sight {
	t.mu.Lock()
	defer t.mu.Unlock()
	permit, found := t.permits[key][clusterName]
	if !found {
		return SightUnknown
	}
	if permit.covers(trial) {
		permit.Pending = true
		t.permits[key][clusterName] = permit
	}
	return permit.sight(trial, seen)
}

// SetPermits replaces the permits of a hub object, and calls the subscribers for each new one. Of the clusters that stay on
// trial without a permit it keeps what is known about the last one.
func (t *Table) SetPermits(key ObjectKey, permits map[string]Permit, trials Trials) {
	t.mu.Lock()
	before := t.permits[key]
	after := follow(permits, before, trials)
	if len(after) == 0 {
		delete(t.permits, key)
	} else {
		t.permits[key] = after
	}
	subscribers := t.permitSubscribers
	t.mu.Unlock()

	for name, permit := range permits {
		if known := before[name]; permit.Pending || known.same(permit) && !known.Pending {
			continue
		}
		for _, fn := range subscribers {
			fn(key, name)
		}
	}
}

// follow returns permits with what is known from the ones before.
func follow(permits, before map[string]Permit, trials Trials) map[string]Permit {
	after := make(map[string]Permit, len(permits))
	for name, permit := range before {
		if permit.covers(trials[name]) {
			permit.Pending = true
			after[name] = permit
		}
	}
	for name, permit := range permits {
		after[name] = permit.after(before[name])
	}
	return after
}

// SubscribePermits calls fn with each cluster that gets a permit, in the goroutine that grants it. fn must not block.
func (t *Table) SubscribePermits(fn func(key ObjectKey, clusterName string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.permitSubscribers = append(t.permitSubscribers, fn)
}

// count updates the number of held copies. The caller holds t.mu.
func (t *Table) count(key ObjectKey, before, after Outcome) {
	if after.Held {
		t.held[key]++
	}
	if before.Held {
		t.held[key]--
	}
	if t.held[key] == 0 {
		delete(t.held, key)
	}
}
