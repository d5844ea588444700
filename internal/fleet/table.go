// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ObjectKey identifies a hub object.
type ObjectKey struct {
	Kind   string
	Object types.NamespacedName
}

// Outcome is the result of placement's last pass for one object in one member. The zero value means that there was none.
type Outcome struct {
	// Generation is the generation of the hub object that the pass processed.
	Generation int64
	// Gone reports whether the copy does not exist, according to a live read or to Deleted.
	Gone bool
	// Deleted is the incarnation of the member's caches that contained the copy when this process deleted it, or 0. When the
	// same caches no longer contain the copy, it is gone.
	Deleted uint64
	// Reason and Message explain why the spec could not be applied. An empty reason means that it was applied.
	Reason, Message string
	// Held reports whether the copy waits for its turn to change. A reason in addition explains the last refusal.
	Held bool
	// Attempt is the write that led to FieldDropped.
	Attempt Attempt
	// MadeIn is the UID of the cluster that has the copy, or that had it until something other than the hub removed it. It is
	// empty if no copy is expected.
	MadeIn types.UID
	// LostAt is when a pass found that copy missing. It is zero again once this is recorded on the hub object; the copy is not
	// created again before.
	LostAt time.Time
}

// Attempt is a write of a copy after which the stored copy differed from what was sent. While neither side has changed,
// repeating the write would have the same result.
type Attempt struct {
	// Sent identifies what was sent, and the member's schema at the time.
	Sent string
	// UID and Generation are those of the copy that the member stored.
	UID        types.UID
	Generation int64
}

// Table stores the outcomes and the permits of all copies. It is empty after a start and filled by the first passes, so it
// must never be the only record of anything.
type Table struct {
	// Slots limits how many objects change in a cluster at a time; nil means no limit. It must be set before the first use.
	Slots *Slots
	// RolledUp are the versions of the hub objects that roll-up wrote last.
	RolledUp Versions

	mu          sync.Mutex
	outcomes    map[ObjectKey]map[string]Outcome
	subscribers []func(ObjectKey, string, Outcome)
	// held counts the outcomes with Held set.
	held              map[ObjectKey]int
	permits           map[ObjectKey]map[string]Permit
	permitSubscribers []func(ObjectKey, string)
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{
		outcomes: map[ObjectKey]map[string]Outcome{}, held: map[ObjectKey]int{}, permits: map[ObjectKey]map[string]Permit{},
	}
}

// Subscribe calls fn with each new outcome, in the goroutine that sets it. fn must not block.
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

// Set stores an outcome and returns the previous one.
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

// Forget deletes the outcomes and permits of an object in the named members, or in all members if none is named.
func (t *Table) Forget(key ObjectKey, clusterNames ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range clusterNames {
		t.count(key, t.outcomes[key][name], Outcome{})
		delete(t.outcomes[key], name)
		delete(t.permits[key], name)
	}
	if len(clusterNames) == 0 {
		t.RolledUp.Forget(key)
	}
	if len(clusterNames) == 0 || len(t.outcomes[key]) == 0 {
		delete(t.outcomes, key)
		delete(t.held, key)
		delete(t.permits, key)
	}
}

// Versions stores the resource versions of the last writes of hub objects, so that a pass can tell whether its cache shows
// them. Losing them only costs writes that fail. The zero value is empty.
type Versions struct {
	mu       sync.Mutex
	byObject map[ObjectKey]version
}

type version struct {
	uid             types.UID
	resourceVersion string
}

// Wrote records the resource version of an object as returned by a write.
func (v *Versions) Wrote(key ObjectKey, object client.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byObject == nil {
		v.byObject = map[ObjectKey]version{}
	}
	v.byObject[key] = version{uid: object.GetUID(), resourceVersion: object.GetResourceVersion()}
}

// Predates reports whether a cached object is older than the last write.
func (v *Versions) Predates(key ObjectKey, object client.Object) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	last, written := v.byObject[key]
	if !written || last.uid != object.GetUID() {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last.resourceVersion)
	return err == nil && order < 0
}

// Forget removes an object.
func (v *Versions) Forget(key ObjectKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byObject, key)
}
