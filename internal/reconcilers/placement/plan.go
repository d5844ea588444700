// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// hubState is the input of a hub pass.
type hubState struct {
	members []fleet.Member
	// chosen are the members that should have a copy, and choice has chosen them. Both are empty if the object is being
	// deleted.
	chosen []string
	choice fleet.Choice
	// departing are the departures of the members in placedIn that are no longer chosen.
	departing []flotillav1.Departure
	// invalid reports whether the placement is invalid.
	invalid bool
	// gone and offboarded report on names in placedIn.
	gone, offboarded map[string]bool
	// lost are the missing copies, with the time since when they are missing.
	lost map[string]time.Time
	// removing reports whether a copy still has to be removed, as far as this is known.
	removing bool
}

// hubPlan is what a hub pass writes.
type hubPlan struct {
	addFinalizer, removeFinalizer bool
	// placedIn is the new record, sorted; the lists below contain the names that it loses, by cause.
	placedIn                           []string
	removed, releasedNames, offboarded []string
	// excess are the chosen members for which the record has no room, sorted.
	excess []string
	// choice and departing record why members in placedIn are no longer chosen.
	choice    string
	departing []flotillav1.Departure
	// recreated records the copies that were created again, and newlyRecreated are the names that are new in it.
	recreated      []flotillav1.Recreation
	newlyRecreated []string
	// trials are the clusters on trial, decided by lead.
	trials []flotillav1.Trial
	// change is the change that clusters have begun to take, decided by lead.
	change *flotillav1.Change
	// orphaned are those of releasedNames that may still have a copy.
	orphaned []string
	// clear are the annotations that have been processed or have no effect.
	clear []string
	// confirmLeave is the new value of the annotation; nil keeps it.
	confirmLeave []string
}

// planHub computes the new record of a hub object.
func planHub(hubObject fleet.Object, state hubState) hubPlan {
	annotations := hubObject.GetAnnotations()
	release, chosen := fleet.Names(annotations[flotillav1.AnnotationRelease]), sets.New(state.chosen...)
	plan := hubPlan{clear: doneAnnotations(hubObject, state.removing)}
	for _, name := range hubObject.GetFleetStatus().PlacedIn {
		switch {
		case slices.Contains(release, name):
			plan.releasedNames = append(plan.releasedNames, name)
			if !state.gone[name] && !state.offboarded[name] {
				plan.orphaned = append(plan.orphaned, name)
			}
		case state.offboarded[name]:
			plan.offboarded = append(plan.offboarded, name)
		case state.gone[name] && !state.invalid && !chosen.Has(name):
			plan.removed = append(plan.removed, name)
		default:
			plan.placedIn = append(plan.placedIn, name)
		}
	}
	recorded := sets.New(plan.placedIn...)
	for _, name := range state.chosen {
		// A member that is not writable has no copy yet, and a deletion must not wait for it.
		member, registered := fleet.Find(state.members, name)
		switch {
		case !registered || !member.Writable || recorded.Has(name) || slices.Contains(release, name):
		case len(plan.placedIn) >= flotillav1.MaxPlacedIn:
			plan.excess = append(plan.excess, name)
		default:
			plan.placedIn = append(plan.placedIn, name)
		}
	}
	slices.Sort(plan.placedIn)
	plan.choice = hubObject.GetFleetStatus().Choice
	if hubObject.GetDeletionTimestamp() == nil && !state.invalid {
		plan.choice = state.choice.Hash()
	}
	if len(plan.placedIn) == 0 {
		plan.choice = ""
	}
	plan.departing = slices.DeleteFunc(slices.Clone(state.departing), func(d flotillav1.Departure) bool {
		_, placed := slices.BinarySearch(plan.placedIn, d.Name)
		return !placed
	})
	plan.recreated, plan.newlyRecreated = planRecreated(hubObject, state, plan.placedIn)

	plan.confirmLeave = leftToConfirm(annotations, plan.placedIn, state.chosen)
	hasFinalizer := slices.Contains(hubObject.GetFinalizers(), flotillav1.FinalizerPlacement)
	// Only copies have to be waited for. A hub without members can be taken down at once.
	wanted := len(plan.placedIn) > 0
	plan.addFinalizer = wanted && !hasFinalizer && hubObject.GetDeletionTimestamp() == nil
	plan.removeFinalizer = !wanted && hasFinalizer
	return plan
}

// doneAnnotations returns the annotations that have been processed or have no effect. They include a confirmation of
// another generation: if it stayed, it could confirm removals, or promote a change, that no one has reviewed.
func doneAnnotations(hubObject fleet.Object, removing bool) []string {
	annotations, done := hubObject.GetAnnotations(), []string(nil)
	for key, worked := range map[string]bool{
		flotillav1.AnnotationRelease:          len(fleet.Names(annotations[flotillav1.AnnotationRelease])) > 0,
		flotillav1.AnnotationConfirmRemoval:   !removing,
		flotillav1.AnnotationConfirmRecreated: true,
		flotillav1.AnnotationPromote:          fleet.PromotionOf(hubObject) == fleet.PromotionNone,
	} {
		if _, set := annotations[key]; set && worked {
			done = append(done, key)
		}
	}
	return done
}

// gathering is how long the record of a deleted object keeps copies that are already gone. Copies usually disappear
// within moments of each other, and the record is deleted with the last one.
const gathering = 3 * time.Second

// waitsForMore returns how long the plan can be delayed because it only removes vanished copies from the record of an
// object that was deleted a moment ago.
func (p hubPlan) waitsForMore(hubObject fleet.Object, now time.Time) time.Duration {
	deleted := hubObject.GetDeletionTimestamp()
	if deleted == nil || p.removeFinalizer || len(p.removed) == 0 || len(p.releasedNames)+len(p.offboarded) > 0 ||
		len(p.clear) > 0 || p.confirmLeave != nil {
		return 0
	}
	age := now.Sub(deleted.Time)
	if age < 0 {
		// The clocks of the hub and the manager may differ.
		return 0
	}
	return max(gathering-age, 0)
}

// recorded reports whether the status already equals the record.
func (p hubPlan) recorded(status *flotillav1.FleetStatus) bool {
	return p.choice == status.Choice && slices.Equal(p.placedIn, status.PlacedIn) && slices.Equal(p.departing, status.Departing) && sameRecreations(p.recreated, status.Recreated) &&
		fleet.SameTrials(p.trials, status.Trials) && fleet.SameChange(p.change, status.Change)
}

// leftToConfirm returns the names in the annotation that have not left yet, or nil if none has left.
func leftToConfirm(annotations map[string]string, placedIn, chosen []string) []string {
	confirmed := fleet.Names(annotations[flotillav1.AnnotationConfirmLeave])
	left := slices.DeleteFunc(slices.Clone(confirmed), func(name string) bool {
		return !slices.Contains(placedIn, name) || slices.Contains(chosen, name)
	})
	if len(left) == len(confirmed) {
		return nil
	}
	return left
}

// systemNamespaces are refused unless the options allow them.
var systemNamespaces = []string{"kube-*", "flotilla-*", "default"}

// namespaceAllowed reports whether copies may be placed into a namespace; cluster-scoped objects have none.
func namespaceAllowed(namespace string, allowed []string) bool {
	matches := func(pattern string) bool {
		matched, err := path.Match(pattern, namespace)
		return err == nil && matched
	}
	return namespace == "" || !slices.ContainsFunc(systemNamespaces, matches) || slices.ContainsFunc(allowed, matches)
}

// copied returns the labels or annotations that copies get from the hub object, which never include those of Flotilla.
func copied(metadata map[string]string, prefixes []string) map[string]string {
	out := map[string]string{}
	for key, value := range metadata {
		ours := strings.HasPrefix(key, flotillav1.GroupVersion.Group+"/")
		if !ours && slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			out[key] = value
		}
	}
	return out
}

// orphans reports whether a copy stays in the member when it is no longer wanted. The placement decides or, if it was
// removed, the value recorded in the copy.
func orphans(hubObject flotillav1.Placeable, annotations map[string]string) bool {
	if placement := hubObject.GetPlacement(); placement != nil {
		return placement.DeletionPolicy == flotillav1.DeletionPolicyOrphan
	}
	return annotations[flotillav1.AnnotationDeletionPolicy] == flotillav1.DeletionPolicyOrphan
}
