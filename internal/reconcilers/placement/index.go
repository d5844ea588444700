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

// index knows of the hub objects what tells which of them a change of a member is about, so that no hub object has to be
// read for it. The zero value is empty.
type index struct {
	mu       sync.Mutex
	byObject map[types.NamespacedName]indexed
}

// indexed is a hub object as its last pass has found it.
type indexed struct {
	uid        types.UID
	generation int64
	// choice is zero while nothing is chosen.
	choice fleet.Choice
	// placedIn is the record, sorted.
	placedIn []string
	// departing are the members in the record that are not chosen any more.
	departing map[string]bool
	// annotated says that a person waits for something: whatever changes may be it.
	annotated bool
}

// concern is what a change of a member means for a hub object.
type concern struct {
	key types.NamespacedName
	// placed says that the member may have a copy.
	placed bool
	// open says that the record is not what is chosen, or that a person waits for something.
	open bool
}

// set takes a hub object up before a pass reads anything else: what changes from then on is noticed.
func (x *index) set(hubObject fleet.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := client.ObjectKeyFromObject(hubObject)
	known := x.byObject[key]
	if known.uid != hubObject.GetUID() || known.generation != hubObject.GetGeneration() {
		known = indexed{uid: hubObject.GetUID(), generation: hubObject.GetGeneration()}
		// One that cannot be understood chooses none.
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
	annotations := hubObject.GetAnnotations()
	known.annotated = slices.ContainsFunc(askingAnnotations, func(name string) bool { return annotations[name] != "" })
	if x.byObject == nil {
		x.byObject = map[types.NamespacedName]indexed{}
	}
	x.byObject[key] = known
}

// askingAnnotations are those by which a person asks for something once.
var askingAnnotations = []string{
	flotillav1.AnnotationRelease, flotillav1.AnnotationConfirmLeave, flotillav1.AnnotationConfirmRemoval, flotillav1.AnnotationConfirmRecreated,
}

func (x *index) forget(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byObject, key)
}

// about returns the hub objects that a change of a member may be about, sorted. registered says whether the name is that
// of a member still.
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
