// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// Fate is the decision about the copy in a member.
type Fate string

// The fates of a copy.
const (
	// FateApply applies the effective spec.
	FateApply Fate = "Apply"
	// FateLeave keeps the copy unchanged: the member no longer matches because its labels changed.
	FateLeave Fate = "Leave"
	// FateRemove removes the copy.
	FateRemove Fate = "Remove"
)

// FateOf returns the fate of the copy in a member that is chosen or has a copy. A copy is removed only after an observed
// action of a person: a deletion, a drain, a confirmation, or a change of the choice; see Departures. In all other cases
// it is kept. annotations are those of the copy, or nil if it cannot be read. member is nil if the name is not registered.
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
		// The placement consists of names only, and these are part of the hub object.
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

// Copy is the state of a copy in the cache of its member.
type Copy struct {
	// Hash and PreviousHash are the annotations with the hashes of the applied effective spec and of the last one before
	// with which the copy was ready.
	Hash, PreviousHash string
	// Rollout identifies the change that led to this spec, and ChangedAt is its time.
	Rollout   string
	ChangedAt time.Time
	// Recorded reports whether the copy was changed by a version that records trials, and Tried whether it was on trial with
	// its spec.
	Recorded, Tried bool
	// Worse reports whether more nodes are not ready than when the spec was changed.
	Worse bool
	// Idle reports whether the spec of the copy makes its reconciler only observe, and HeldBack whether nothing else keeps it
	// from being ready.
	Idle, HeldBack bool
	// Version is the resourceVersion. Generation and ObservedGeneration are the member's own.
	Version                        string
	Generation, ObservedGeneration int64
	// Deleting reports whether the copy is being deleted in the member.
	Deleting bool
	// Ready is the Ready condition, or nil if there is none yet.
	Ready *metav1.Condition
	// Progressing reports whether a change is in progress in the member, and Pace how long that may take beyond the deadline
	// because its reconcilers go slowly.
	Progressing bool
	Pace        time.Duration
}

// CopyOf returns the Copy for an object of a member.
func CopyOf(kind Kind, object Object) *Copy {
	annotations := object.GetAnnotations()
	seen := &Copy{
		Hash:               annotations[flotillav1.AnnotationSpecHash],
		PreviousHash:       annotations[flotillav1.AnnotationPreviousSpecHash],
		Rollout:            annotations[flotillav1.AnnotationRollout],
		Version:            object.GetResourceVersion(),
		Generation:         object.GetGeneration(),
		ObservedGeneration: kind.ObservedGeneration(object),
		Deleting:           object.GetDeletionTimestamp() != nil,
		Idle:               kind.Idle(object),
	}
	before, recorded := annotations[flotillav1.AnnotationReadyBefore]
	seen.Recorded, seen.Tried = recorded, before == "true"
	if before, err := strconv.Atoi(annotations[flotillav1.AnnotationUnreadyNodesBefore]); err == nil && kind.UnreadyNodes != nil {
		seen.Worse = kind.UnreadyNodes(object) > before
	}
	// A time that does not parse counts as long ago.
	seen.ChangedAt, _ = time.Parse(time.RFC3339, annotations[flotillav1.AnnotationSpecChangedAt])
	for _, condition := range *object.GetConditions() {
		switch condition.Type {
		case flotillav1.ConditionReady:
			seen.Ready = condition.DeepCopy()
			seen.HeldBack = heldBack(&condition)
		case flotillav1.ConditionProgressing:
			seen.Progressing = condition.Status == metav1.ConditionTrue
		}
	}
	if kind.Pace != nil && seen.Progressing && !seen.Worse {
		seen.Pace = kind.Pace(object)
	}
	return seen
}

// PlacedFrom returns the value of the annotation that links a copy to its hub object.
func PlacedFrom(key types.NamespacedName) string { return key.Namespace + "/" + key.Name }

// IsOurs reports whether an object of a member is this hub's copy of the hub object with the same name.
func IsOurs(object metav1.Object, hubID string) bool {
	key := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	annotations := object.GetAnnotations()
	return hubID != "" && annotations[flotillav1.AnnotationHub] == hubID && annotations[flotillav1.AnnotationPlacedFrom] == PlacedFrom(key)
}

// MayAdopt reports whether both sides consent that a hub object adopts a member's own object.
func MayAdopt(hubObject flotillav1.Placeable, found metav1.Object, hubID string) bool {
	placement := hubObject.GetPlacement()
	return placement != nil && placement.ConflictPolicy == flotillav1.ConflictPolicyAdopt && found.GetAnnotations()[flotillav1.AnnotationAdoptBy] == hubID
}

// Names parses a list of cluster names in an annotation.
func Names(value string) []string {
	names := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	slices.Sort(names)
	return slices.Compact(names)
}

// HadCopy reports whether the published status of a hub object proves that there was a copy in a cluster. After a restart
// this is the only evidence.
func HadCopy(kind Kind, object Object, clusterName string) bool {
	if _, recorded := RecreatedAt(object, clusterName); recorded {
		// The published entry may describe the earlier copy.
		return false
	}
	readyListed := false
	for _, entry := range kind.Entries(object) {
		if entry.Name == clusterName {
			return entry.ObservedGeneration > 0
		}
		readyListed = readyListed || entry.Ready == metav1.ConditionTrue
	}
	// Entries that are ready are omitted first from a list that is too long.
	return readyListed && object.GetFleetStatus().ClustersOmitted > 0
}

// RecreatedAt returns when the copy in a cluster was found missing, and whether this is recorded and not acknowledged.
func RecreatedAt(object flotillav1.Placeable, clusterName string) (time.Time, bool) {
	recreated := object.GetFleetStatus().Recreated
	i, found := slices.BinarySearchFunc(recreated, clusterName, func(r flotillav1.Recreation, name string) int { return strings.Compare(r.Name, name) })
	if !found {
		return time.Time{}, false
	}
	return recreated[i].Time.Time, true
}
