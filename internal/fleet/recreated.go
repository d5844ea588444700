// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

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

// Texts about copies that are created again.
const (
	RecreatedNote   = "The copy disappeared and is created again, without its earlier data unless its volumes were kept"
	RecreatedAdvice = "restore what is missing, then name the clusters in annotation " + flotillav1.AnnotationConfirmRecreated
)

// recreated returns the condition CopyRecreated, and whether it applies.
func (f Facts) recreated() (metav1.Condition, bool) {
	names := make([]string, 0, len(f.Recreated))
	for _, item := range f.Recreated {
		names = append(names, fmt.Sprintf("%s (%s)", item.Name, item.Time.UTC().Format(time.RFC3339)))
	}
	return metav1.Condition{
		Type: flotillav1.ConditionCopyRecreated, Status: metav1.ConditionTrue, Reason: flotillav1.ReasonCopyRecreated,
		Message: fmt.Sprintf("%s: %s; %s", RecreatedNote, Join(names), RecreatedAdvice),
	}, len(names) > 0
}

// madeAgain returns the text about such copies for Ready. Nothing waits for a person, so the object is not stalled.
func (f Facts) madeAgain() []wait {
	names := make([]string, 0, len(f.Recreated))
	for _, item := range f.Recreated {
		names = append(names, item.Name)
	}
	if len(names) == 0 {
		return nil
	}
	return []wait{{flotillav1.ReasonCopyRecreated, "Created again, see condition " + flotillav1.ConditionCopyRecreated + ": " + Join(names)}}
}
