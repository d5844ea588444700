// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

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
		Message: fmt.Sprintf("%s: %s; %s", RecreatedNote, text.Names(names), RecreatedAdvice),
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
	return []wait{{flotillav1.ReasonCopyRecreated, "Created again, see condition " + flotillav1.ConditionCopyRecreated + ": " + text.Names(names)}}
}
