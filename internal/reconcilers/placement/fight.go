// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// fightLimit reverts of one field of one copy within fightWindow are a fight: something in the member insists on its
	// value.
	fightLimit  = 3
	fightWindow = 10 * time.Minute
)

// fights remember which fields of copies were reverted recently. Losing them only costs a few more reverts. The zero
// value is empty.
type fights struct {
	mu       sync.Mutex
	byObject map[fleet.ObjectKey]map[string]*fight
}

// fight describes one copy and one effective spec; another spec starts another fight.
type fight struct {
	hash string
	// reverts are the times at which each field was reverted.
	reverts map[string][]time.Time
	// agreed contains the fields that are left to the member, with the time since which both sides have had the same
	// value, or zero while they differ.
	agreed map[string]time.Time
}

// lost returns the fields of a copy that are left to the member. differs are the fields that differ now. A fight is
// over when both sides have had the same value for the whole window.
func (f *fights) lost(key fleet.ObjectKey, clusterName, hash string, differs []string, now time.Time) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.byObject[key][clusterName]
	if known == nil || known.hash != hash {
		return nil
	}
	var fields []string
	for field, since := range known.agreed {
		over := !since.IsZero() && now.Sub(since) >= fightWindow
		switch differ := slices.Contains(differs, field); {
		case over:
			delete(known.agreed, field)
		case differ:
			known.agreed[field] = time.Time{}
			fields = append(fields, field)
		case since.IsZero():
			known.agreed[field] = now
		}
	}
	slices.Sort(fields)
	return fields
}

// reverted records that fields of a copy were reverted.
func (f *fights) reverted(key fleet.ObjectKey, clusterName, hash string, fields []string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byObject == nil {
		f.byObject = map[fleet.ObjectKey]map[string]*fight{}
	}
	if f.byObject[key] == nil {
		f.byObject[key] = map[string]*fight{}
	}
	known := f.byObject[key][clusterName]
	if known == nil || known.hash != hash {
		known = &fight{hash: hash, reverts: map[string][]time.Time{}, agreed: map[string]time.Time{}}
		f.byObject[key][clusterName] = known
	}
	for _, field := range fields {
		times := slices.Concat(known.reverts[field], []time.Time{now})
		for now.Sub(times[0]) >= fightWindow {
			times = times[1:]
		}
		if len(times) >= fightLimit {
			known.agreed[field], times = now, nil
		}
		known.reverts[field] = times
	}
}

func (f *fights) forget(key fleet.ObjectKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byObject, key)
}

// concede returns the spec for a copy without the fields that something in the member keeps changing; they keep the
// member's value until both sides agree or the hub's spec changes. It also returns the fields that were changed without
// a fight, which are reverted. A copy to which this spec has not been applied yet has no drift.
func (p *copyPass) concede(found fleet.Object, want fleet.Effective) (fleet.Effective, []string, error) {
	if found.GetAnnotations()[flotillav1.AnnotationSpecHash] != want.Hash {
		return want, nil, nil
	}
	differs, err := fleet.Uncovered(want.Spec, p.Kind.Spec(found))
	if err != nil {
		return want, nil, fmt.Errorf("comparing the copy in cluster %q: %w", p.name, err)
	}
	p.conceded = p.fights.lost(p.key, p.name, want.Hash, differs, p.Clock.Now())
	if len(p.conceded) == 0 {
		return want, differs, nil
	}
	drifted := slices.DeleteFunc(differs, func(field string) bool { return slices.Contains(p.conceded, field) })
	want, err = fleet.Concede(want, p.Kind.Spec(found), p.conceded)
	return want, drifted, err
}

// placed reports that the copy is up to date, except for the fields that are left to the member.
func (p *copyPass) placed() {
	if len(p.conceded) == 0 {
		p.report(fleet.Outcome{})
		return
	}
	fields := strings.ReplaceAll(text.Names(p.conceded), "spec.", "")
	p.reportWithEvent(fleet.Outcome{Reason: flotillav1.ReasonOwnershipFight, Message: fmt.Sprintf(
		"Something in the cluster keeps changing %s, which is no longer reverted: stop the other writer, or give the field up with leaveToMember: [%s] in an override",
		text.Names(p.conceded), fields)})
}
