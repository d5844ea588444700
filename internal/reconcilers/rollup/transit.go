// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

const (
	// A status that only reports copies in progress waits for minTransit, and for transitShare per object with copies in
	// progress, but never longer than maxTransit.
	minTransit   = 2 * time.Second
	maxTransit   = 10 * time.Second
	transitShare = 100 * time.Millisecond
)

// transit delays the status of an object whose copies are being created, changed or removed. The status would be
// outdated moments later, and would delay the one that reports completion by a second. When many objects change
// together, most of the load on the hub comes from such statuses. The zero value is ready to use.
type transit struct {
	mu sync.Mutex
	// since is when copies of an object were first found in progress, or when this was last written; guarded by mu.
	since map[types.NamespacedName]time.Time
}

// hold returns how long a status has to wait. A status that reports anything else is written at once.
func (t *transit) hold(key types.NamespacedName, before, after fleet.Object, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !inTransit(after) {
		delete(t.since, key)
		return 0
	}
	if t.since == nil {
		t.since = map[types.NamespacedName]time.Time{}
	}
	since, found := t.since[key]
	if !found {
		since = now
		t.since[key] = now
	}
	if turned(before, after) {
		return 0
	}
	pause := min(max(time.Duration(len(t.since))*transitShare, minTransit), maxTransit)
	return max(since.Add(pause).Sub(now), 0)
}

// turned reports whether something other than copies in progress has changed: an object became ready, or stopped being
// ready without a change of its spec, or a condition for people was added or removed.
func turned(before, after fleet.Object) bool {
	for _, conditionType := range forPeople() {
		if apimeta.IsStatusConditionTrue(*before.GetConditions(), conditionType) != apimeta.IsStatusConditionTrue(*after.GetConditions(), conditionType) {
			return true
		}
	}
	was := apimeta.FindStatusCondition(*before.GetConditions(), flotillav1.ConditionReady)
	is := apimeta.FindStatusCondition(*after.GetConditions(), flotillav1.ConditionReady)
	return was != nil && is != nil && was.ObservedGeneration == is.ObservedGeneration && was.Status != is.Status
}

// settle deletes an object whose published status does not report copies in progress.
func (t *transit) settle(key types.NamespacedName, published fleet.Object) {
	if !inTransit(published) {
		t.forget(key)
	}
}

// wrote records that a status has been written.
func (t *transit) wrote(key types.NamespacedName, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, found := t.since[key]; found {
		t.since[key] = now
	}
}

func (t *transit) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, key)
}

// inTransit reports whether copies are in progress and nothing is wrong.
func inTransit(hubObject fleet.Object) bool {
	conditions := *hubObject.GetConditions()
	placed := apimeta.FindStatusCondition(conditions, flotillav1.ConditionPlaced)
	return apimeta.IsStatusConditionTrue(conditions, flotillav1.ConditionProgressing) &&
		!apimeta.IsStatusConditionTrue(conditions, flotillav1.ConditionStalled) &&
		(placed == nil || placed.Status == metav1.ConditionTrue || placed.Reason == flotillav1.ReasonPlacementPending || placed.Reason == flotillav1.ReasonDeleting)
}
