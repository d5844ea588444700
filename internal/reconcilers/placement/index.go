// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// index maps a change of a member to the hub objects that it affects, without reading any hub object. The zero value is
// empty.
type index struct {
	mu       sync.Mutex
	byObject map[types.NamespacedName]indexed
}

// indexed is a hub object as seen by its last pass.
type indexed struct {
	uid        types.UID
	generation int64
	// choice is zero while nothing is chosen.
	choice fleet.Choice
	// placedIn is the record, sorted.
	placedIn []string
	// departing are the members in the record that are no longer chosen.
	departing map[string]bool
	// tries reports whether clusters are on trial, or a change is under way.
	tries bool
	// annotated reports whether the object has an annotation with a pending request, which any change may concern.
	annotated bool
}

// concern describes how a change of a member affects a hub object.
type concern struct {
	key types.NamespacedName
	// placed reports whether the member may have a copy.
	placed bool
	// open reports whether the record differs from the choice, or a request of a person is pending.
	open bool
}

// set indexes a hub object before a pass reads anything else, so that later changes are noticed.
func (x *index) set(hubObject fleet.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := client.ObjectKeyFromObject(hubObject)
	known := x.byObject[key]
	if known.uid != hubObject.GetUID() || known.generation != hubObject.GetGeneration() {
		known = indexed{uid: hubObject.GetUID(), generation: hubObject.GetGeneration()}
		// An invalid placement chooses none.
		known.choice, _ = fleet.NewChoice(hubObject.GetPlacement(), hubObject.GetNamespace())
	}
	if hubObject.GetDeletionTimestamp() != nil {
		known.choice = fleet.Choice{}
	}
	known.placedIn = slices.Clone(hubObject.GetFleetStatus().PlacedIn)
	slices.Sort(known.placedIn)
	known.departing = map[string]bool{}
	for _, departure := range hubObject.GetFleetStatus().Departing {
		known.departing[departure.Name] = true
	}
	known.tries = len(hubObject.GetFleetStatus().Trials) > 0 || hubObject.GetFleetStatus().Change != nil
	annotations := hubObject.GetAnnotations()
	known.annotated = slices.ContainsFunc(askingAnnotations, func(name string) bool { return annotations[name] != "" })
	if x.byObject == nil {
		x.byObject = map[types.NamespacedName]indexed{}
	}
	x.byObject[key] = known
}

// askingAnnotations are the annotations that request a single action.
var askingAnnotations = []string{
	flotillav1.AnnotationRelease, flotillav1.AnnotationConfirmLeave, flotillav1.AnnotationConfirmRemoval, flotillav1.AnnotationConfirmRecreated,
	flotillav1.AnnotationPromote,
}

// tried reports whether clusters of a hub object are on trial, or a change is under way.
func (x *index) tried(key types.NamespacedName) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byObject[key].tries
}

func (x *index) forget(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byObject, key)
}

// about returns the hub objects that a change of a member may affect, sorted. registered reports whether the member is
// still registered.
func (x *index) about(name string, member fleet.Member, registered bool) []concern {
	x.mu.Lock()
	defer x.mu.Unlock()
	var concerns []concern
	for key, known := range x.byObject {
		_, placed := slices.BinarySearch(known.placedIn, name)
		chosen := registered && known.choice.Takes(member, placed)
		if placed || chosen {
			concerns = append(concerns, concern{key: key, placed: placed, open: chosen != placed || known.departing[name] || known.annotated})
		}
	}
	slices.SortFunc(concerns, func(a, b concern) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	return concerns
}
