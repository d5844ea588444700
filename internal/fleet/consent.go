// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"sync"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Departures returns the departures of the clusters in placedIn that the choice of a hub object no longer matches, sorted
// by name. carried returns the labels hash of the copy in a member, and whether the copy can be read.
//
// Only a change of the choice is consent to a removal. It is recorded on the hub object when it is observed, so that the
// record depends neither on the member nor on the process that observed it:
//
//	choice changed | labels changed                  | recorded cause and result
//	---------------+---------------------------------+-----------------------------------------------------------
//	no             | -                               | LabelsChanged: kept. Only the registration can have changed.
//	yes            | no                              | ChoiceChanged: removed.
//	yes            | yes, recorded earlier           | ChoiceChanged: removed. The choice changed while it was Leaving.
//	yes            | yes, observed together          | LabelsChanged: kept. The intended cause is unknown.
//	yes            | unknown, member is unreachable  | Undecided: kept until the copy is read, then one of the above.
//
// Labels have changed if they differ from those that the copy carries. A status without a hash of the choice, written by
// an older version, is treated as if the choice had not changed: the copies are kept.
func Departures(object flotillav1.Placeable, choice Choice, placedIn []string, members []Member, carried func(Member) (string, bool)) []flotillav1.Departure {
	status := object.GetFleetStatus()
	changed := sync.OnceValue(func() bool { return status.Choice != "" && status.Choice != choice.Hash() })
	var departures []flotillav1.Departure
	for _, name := range placedIn {
		known, recorded := DepartureOf(object, name)
		member, registered := Find(members, name)
		switch {
		case !registered && recorded && !choice.Names(name):
			departures = append(departures, known)
			continue
		case !registered || choice.Matches(member, true):
			continue
		case !recorded && !changed():
			known = flotillav1.Departure{Cause: flotillav1.DepartureLabelsChanged}
		case !recorded:
			known = flotillav1.Departure{Cause: flotillav1.DepartureUndecided, Labels: LabelsHash(member.Labels)}
		case known.Cause == flotillav1.DepartureLabelsChanged && changed():
			known.Cause = flotillav1.DepartureChoiceChanged
		}
		if labels, read := carried(member); read && known.Cause == flotillav1.DepartureUndecided {
			known.Cause = flotillav1.DepartureLabelsChanged
			if labels == known.Labels {
				known.Cause = flotillav1.DepartureChoiceChanged
			}
		}
		if known.Cause != flotillav1.DepartureUndecided {
			known.Labels = ""
		}
		known.Name = name
		departures = append(departures, known)
	}
	return departures
}

// DepartureOf returns the recorded departure of a cluster, if there is one.
func DepartureOf(object flotillav1.Placeable, name string) (flotillav1.Departure, bool) {
	departing := object.GetFleetStatus().Departing
	i, found := slices.BinarySearchFunc(departing, name, func(d flotillav1.Departure, name string) int { return strings.Compare(d.Name, name) })
	if !found {
		return flotillav1.Departure{}, false
	}
	return departing[i], true
}

// consents reports whether the hub object records consent to the removal of a copy with these annotations.
func consents(object flotillav1.Placeable, name string, annotations map[string]string) bool {
	departure, recorded := DepartureOf(object, name)
	switch {
	case !recorded:
		return false
	case departure.Cause == flotillav1.DepartureUndecided:
		return departure.Labels != "" && departure.Labels == annotations[flotillav1.AnnotationClusterLabels]
	default:
		return departure.Cause == flotillav1.DepartureChoiceChanged
	}
}

// LabelsHash identifies a set of labels.
func LabelsHash(labels map[string]string) string {
	fields := make(map[string]any, len(labels))
	for key, value := range labels {
		fields[key] = value
	}
	// Strings can always be encoded.
	hash, _ := hashOf(fields)
	return hash
}
