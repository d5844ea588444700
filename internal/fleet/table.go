// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ObjectKey names a hub object.
type ObjectKey struct {
	Kind   string
	Object types.NamespacedName
}

// Outcome is how placement's last pass for one object in one member ended. The zero value says nothing.
type Outcome struct {
	// Generation of the hub object that the pass was for.
	Generation int64
	// Gone says that no copy of ours was there, by a live read or by Deleted.
	Gone bool
	// Deleted is the incarnation of the member's caches that showed the copy when this process deleted it; 0 when it did not.
	// Once the same caches show none, it is gone.
	Deleted uint64
	// Reason and Message say why the copy could not be made what it should be; an empty reason says that it was.
	Reason, Message string
	// Held says that the copy is to be changed and waits for its turn. A reason besides is why it was refused the last time.
	Held bool
	// Attempt is what led to FieldDropped.
	Attempt Attempt
	// MadeIn is the UID of the cluster that has the copy, or had it until something but the hub removed it; empty when there is
	// none to miss.
	MadeIn types.UID
	// LostAt is when a pass missed that copy; zero once that is recorded on the hub object. The copy is not made again before.
	LostAt time.Time
}

// Attempt is a write of a copy that did not lead to what was sent. While both sides are still as they were then, another
// one would lead to the same.
type Attempt struct {
	// Sent identifies what was sent, and by which schema the member took it.
	Sent string
	// UID and Generation are those of the copy that the member stored.
	UID        types.UID
	Generation int64
}

// Table holds the outcomes, and who may take a change. It is empty after a start and fills with the first passes, so nothing in it may be the only
// record of anything.
type Table struct {
	mu          sync.Mutex
	outcomes    map[ObjectKey]map[string]Outcome
	subscribers []func(ObjectKey, string, Outcome)
	// held counts the outcomes that are Held.
	held             map[ObjectKey]int
	leaves           map[ObjectKey]map[string]Leave
	leaveSubscribers []func(ObjectKey, string)
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		outcomes: map[ObjectKey]map[string]Outcome{}, held: map[ObjectKey]int{}, leaves: map[ObjectKey]map[string]Leave{},
	}
}

// Subscribe calls fn with each new outcome, from the goroutine that made it. fn must not block.
func (t *Table) Subscribe(fn func(key ObjectKey, clusterName string, outcome Outcome)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscribers = append(t.subscribers, fn)
}

// Get returns the outcome for an object in a member.
func (t *Table) Get(key ObjectKey, clusterName string) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcomes[key][clusterName]
}

// Set records an outcome and returns the one before.
func (t *Table) Set(key ObjectKey, clusterName string, outcome Outcome) Outcome {
	t.mu.Lock()
	before, known := t.outcomes[key][clusterName]
	if known && before == outcome {
		t.mu.Unlock()
		return before
	}
	if t.outcomes[key] == nil {
		t.outcomes[key] = map[string]Outcome{}
	}
	t.outcomes[key][clusterName] = outcome
	t.count(key, before, outcome)
	subscribers := t.subscribers
	t.mu.Unlock()

	for _, fn := range subscribers {
		fn(key, clusterName, outcome)
	}
	return before
}

// Forget drops what is known about an object in a member, or in all members when none is named.
func (t *Table) Forget(key ObjectKey, clusterNames ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range clusterNames {
		t.count(key, t.outcomes[key][name], Outcome{})
		delete(t.outcomes[key], name)
		delete(t.leaves[key], name)
	}
	if len(clusterNames) == 0 || len(t.outcomes[key]) == 0 {
		delete(t.outcomes, key)
		delete(t.held, key)
		delete(t.leaves, key)
	}
}
