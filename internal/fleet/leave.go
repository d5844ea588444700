// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"time"
)

// Leave lets a cluster take a change: its copy may be given the spec with that hash.
type Leave struct {
	Hash string
	// At is when it was given.
	At time.Time
}

// Held reports whether some copy of a hub object waits for its turn.
func (t *Table) Held(key ObjectKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[key] > 0
}

// Leaves returns which clusters may take a change.
func (t *Table) Leaves(key ObjectKey) map[string]Leave {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.leaves[key])
}

// MayTake reports whether a cluster may be given the spec with that hash.
func (t *Table) MayTake(key ObjectKey, clusterName, hash string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaves[key][clusterName].Hash == hash
}

// SetLeaves says which clusters may take a change from now on, and no others.
func (t *Table) SetLeaves(key ObjectKey, leaves map[string]Leave) {
	t.mu.Lock()
	before := t.leaves[key]
	if len(leaves) == 0 {
		delete(t.leaves, key)
	} else {
		t.leaves[key] = maps.Clone(leaves)
	}
	told := t.leaveSubscribers
	t.mu.Unlock()

	for name, leave := range leaves {
		if before[name] == leave {
			continue
		}
		for _, fn := range told {
			fn(key, name)
		}
	}
}

// SubscribeLeaves calls fn with each cluster that is let take a change, from the goroutine that let it. fn must not block.
func (t *Table) SubscribeLeaves(fn func(key ObjectKey, clusterName string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveSubscribers = append(t.leaveSubscribers, fn)
}

// count keeps the number of held copies; t.mu is held.
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
