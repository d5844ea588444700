// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Fate is what becomes of the copy in a member.
type Fate string

// The fates of a copy.
const (
	// FateApply makes the copy what the hub object says.
	FateApply Fate = "Apply"
	// FateLeave keeps the copy as it is: the member no longer matches because its labels changed.
	FateLeave Fate = "Leave"
	// FateRemove takes the copy away.
	FateRemove Fate = "Remove"
)

// FateOf returns what becomes of the copy in a member that is chosen or has one. A copy is removed only for something that
// a person did and that was seen: a deletion, a drain, a confirmation, or a change of the choice; see Departures.
// Everything else keeps the copy. annotations are those of the copy, nil when it cannot be read. member is nil when the
// name is not registered.
func FateOf(object flotillav1.Placeable, name string, member *Member, chosen bool, annotations map[string]string) Fate {
	placement := object.GetPlacement()
	switch {
	case object.GetDeletionTimestamp() != nil:
		return FateRemove
	case chosen:
		return FateApply
	case member != nil && member.Draining, placement == nil:
		return FateRemove
	case placement.ClusterSelector == nil && !placement.All:
		// Only names chose, and those are the hub object's own.
		return FateRemove
	case slices.Contains(Names(object.GetAnnotations()[flotillav1.AnnotationConfirmLeave]), name):
		return FateRemove
	case annotations != nil && annotations[flotillav1.AnnotationHubUID] != string(object.GetUID()):
		return FateLeave
	case member != nil && !member.Allows(object.GetNamespace()):
		return FateLeave
	case consents(object, name, annotations):
		return FateRemove
	default:
		return FateLeave
	}
}

// Copy is what a member's cache shows of a copy of ours.
type Copy struct {
	// Hash is the annotation that says which effective spec it was given, and PreviousHash which one it had before.
	Hash, PreviousHash string
	// Rollout names the change that gave it its spec, and ChangedAt is when.
	Rollout   string
	ChangedAt time.Time
	// Generation and ObservedGeneration are the member's own.
	Generation, ObservedGeneration int64
	// Deleting says that someone deletes it in the member.
	Deleting bool
	// Ready is its condition; nil when it has none yet.
	Ready *metav1.Condition
	// Progressing says that a change is on its way in the member.
	Progressing bool
}

// CopyOf reads a member's object of a kind.
func CopyOf(kind Kind, object Object) *Copy {
	annotations := object.GetAnnotations()
	seen := &Copy{
		Hash:               annotations[flotillav1.AnnotationSpecHash],
		PreviousHash:       annotations[flotillav1.AnnotationPreviousSpecHash],
		Rollout:            annotations[flotillav1.AnnotationRollout],
		Generation:         object.GetGeneration(),
		ObservedGeneration: kind.ObservedGeneration(object),
		Deleting:           object.GetDeletionTimestamp() != nil,
	}
	// What does not parse was long ago.
	seen.ChangedAt, _ = time.Parse(time.RFC3339, annotations[flotillav1.AnnotationSpecChangedAt])
	for _, condition := range *object.GetConditions() {
		switch condition.Type {
		case flotillav1.ConditionReady:
			seen.Ready = condition.DeepCopy()
		case flotillav1.ConditionProgressing:
			seen.Progressing = condition.Status == metav1.ConditionTrue
		}
	}
	return seen
}

// PlacedFrom is the value of the annotation that ties a copy to its hub object.
func PlacedFrom(key types.NamespacedName) string { return key.Namespace + "/" + key.Name }

// IsOurs reports whether a member's object is the copy that this hub made of the hub object of the same name.
func IsOurs(object metav1.Object, hubID string) bool {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	annotations := object.GetAnnotations()
	return hubID != "" && annotations[flotillav1.AnnotationHub] == hubID && annotations[flotillav1.AnnotationPlacedFrom] == PlacedFrom(key)
}

// Names splits a list of cluster names as it is written in an annotation.
func Names(value string) []string {
	names := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	slices.Sort(names)
	return slices.Compact(names)
}
