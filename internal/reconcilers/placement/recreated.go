// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/conditions"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// recall determines which copy exists or existed, as far as this is known: a missing copy is not created again
// silently. replaced reports whether the published status describes another cluster.
func (p *copyPass) recall(found fleet.Object, replaced bool) {
	before := p.Table.Get(p.key, p.name)
	switch {
	case found != nil && found.GetDeletionTimestamp() == nil && fleet.IsOurs(found, p.Options.HubID):
		p.madeIn = p.cluster
		return
	case before.Generation == 0 && !replaced && fleet.HadCopy(p.Kind, p.hubObject, p.name):
		p.madeIn = p.cluster
	case before.MadeIn == p.cluster:
		p.madeIn = before.MadeIn
	}
	if found == nil && !p.recordedSince(before.LostAt) {
		p.lostAt = before.LostAt
	}
}

// recordedSince reports whether the loss of the copy has been recorded with that time or a later one.
func (p *copyPass) recordedSince(lostAt time.Time) bool {
	recordedAt, recorded := fleet.RecreatedAt(p.hubObject, p.name)
	return recorded && !recordedAt.Before(lostAt)
}

// missed reports whether there was a copy that the hub has not removed. If data is lost with it, a hub pass has to
// record this first.
func (p *copyPass) missed() bool {
	missed := p.madeIn != ""
	if missed && p.Kind.HoldsData {
		p.madeIn, p.lostAt = "", sanitize.Moment(p.Clock.Now()).Time
		if p.recordedSince(p.lostAt) {
			p.lostAt = time.Time{}
		}
	}
	return missed
}

// planRecreated decides which clusters are recorded because their copies are created again, and which of them are new.
// chosen are those that get a copy, placedIn those that may have one, and confirmed those that a person has
// acknowledged.
func planRecreated(hubObject fleet.Object, state hubState, placedIn []string) (recreated []flotillav1.Recreation, added []string) {
	confirmed := fleet.Names(hubObject.GetAnnotations()[flotillav1.AnnotationConfirmRecreated])
	for _, name := range placedIn {
		recordedAt, recorded := fleet.RecreatedAt(hubObject, name)
		_, chosen := slices.BinarySearch(state.chosen, name)
		lostAt := state.lost[name]
		switch {
		case chosen && lostAt.After(recordedAt):
			recreated = append(recreated, flotillav1.Recreation{Name: name, Time: metav1.NewTime(lostAt)})
			added = append(added, name)
		case recorded && !slices.Contains(confirmed, name):
			recreated = append(recreated, flotillav1.Recreation{Name: name, Time: metav1.NewTime(recordedAt)})
		}
	}
	return recreated, added
}

func sameRecreations(a, b []flotillav1.Recreation) bool {
	return slices.EqualFunc(a, b, func(a, b flotillav1.Recreation) bool { return a.Name == b.Name && a.Time.Equal(&b.Time) })
}

// sayRecreated records which copies are created again.
func (r *Reconciler) sayRecreated(hubObject fleet.Object, names []string) {
	if len(names) > 0 {
		r.say(hubObject, corev1.EventTypeWarning, flotillav1.ReasonCopyRecreated, actionPlace, text.Names(names), conditions.RecreatedNote+"; "+conditions.RecreatedAdvice)
	}
}

// expectNoCopy records for clusters that are about to enter the record that no copy is expected there, whatever has
// been published about them.
func (r *Reconciler) expectNoCopy(hubObject fleet.Object, placedIn []string) {
	key, recorded := r.key(hubObject), sets.New(hubObject.GetFleetStatus().PlacedIn...)
	for _, name := range placedIn {
		if !recorded.Has(name) && r.Table.Get(key, name).Generation == 0 {
			r.Table.Set(key, name, fleet.Outcome{Generation: hubObject.GetGeneration()})
		}
	}
}
