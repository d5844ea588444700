// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func TestStateOf(t *testing.T) {
	entry := func(name string, ready metav1.ConditionStatus) fleet.Entry {
		return fleet.Entry{
			ClusterStatus: flotillav1.ClusterStatus{Name: name, Ready: ready},
			Visible:       ready != metav1.ConditionUnknown, Applied: true,
		}
	}
	well, away, unwell := entry("a", metav1.ConditionTrue), entry("b", metav1.ConditionUnknown), entry("c", metav1.ConditionFalse)
	coming := unwell
	coming.Progressing = true
	for name, tc := range map[string]struct {
		facts Facts
		want  State
	}{
		"all are ready":                      {Facts{Entries: []fleet.Entry{well}}, StateReady},
		"one cannot be seen":                 {Facts{Entries: []fleet.Entry{well, away}}, StateUnknown},
		"none can be seen":                   {Facts{Entries: []fleet.Entry{away}}, StateUnknown},
		"one is not ready":                   {Facts{Entries: []fleet.Entry{well, away, unwell}}, StateDegraded},
		"one becomes ready":                  {Facts{Entries: []fleet.Entry{well, coming}}, StateProgressing},
		"a change is halted":                 {Facts{Entries: []fleet.Entry{well, coming}, Halt: "Not ready in time: a; not changed: b"}, StateDegraded},
		"no cluster is chosen":               {Facts{}, StateDegraded},
		"the placement cannot be understood": {Facts{Invalid: errors.New("no")}, StateDegraded},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.HasPlacement = true
			if got := StateOf(Of(tc.facts)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if got := StateOf(nil); got != StateUnknown {
		t.Errorf("without conditions: got %s, want %s", got, StateUnknown)
	}
}
