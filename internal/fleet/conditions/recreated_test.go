// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestConditions_CopyRecreated(t *testing.T) {
	entry := fleet.Entry{ClusterStatus: flotillav1.ClusterStatus{Name: "eu-1", Ready: "True"}, Fate: fleet.FateApply, Visible: true, Applied: true}
	facts := Facts{HasPlacement: true, Generation: 7, Entries: []fleet.Entry{entry}}
	if got := apimeta.FindStatusCondition(Of(facts), flotillav1.ConditionCopyRecreated); got != nil {
		t.Errorf("no copy was made again, and it says %+v", got)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "eu-1"} {
		facts.Recreated = append(facts.Recreated, flotillav1.Recreation{Name: name, Time: metav1.NewTime(noon)})
	}
	conditions := Of(facts)
	got, at := apimeta.FindStatusCondition(conditions, flotillav1.ConditionCopyRecreated), noon.UTC().Format("2006-01-02T15:04:05Z")
	want := "The copy disappeared and is created again, without its earlier data unless its volumes were kept: a (" + at + "), b (" + at + "), c (" + at + "), d (" + at + "), e (" + at +
		") and 1 more; restore what is missing, then name the clusters in annotation flotilla.dev/confirm-recreated"
	if got == nil || got.Status != metav1.ConditionTrue || got.Reason != flotillav1.ReasonCopyRecreated || got.ObservedGeneration != 7 || got.Message != want {
		t.Errorf("got %+v, want %q", got, want)
	}
	ready := apimeta.FindStatusCondition(conditions, flotillav1.ConditionReady)
	if want := "Created again, see condition CopyRecreated: a, b, c, d, e and 1 more; 1 of 1 clusters are ready"; ready.Status != metav1.ConditionTrue || ready.Message != want {
		t.Errorf("Ready is %+v, want %q", ready, want)
	}
	if stalled := apimeta.FindStatusCondition(conditions, flotillav1.ConditionStalled); stalled != nil {
		t.Errorf("nothing waits, and it is stalled: %+v", stalled)
	}
}
