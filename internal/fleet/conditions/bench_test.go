// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// hundred are the facts about 100 clusters that are ready.
func hundred() Facts {
	facts := Facts{Generation: 7, HasPlacement: true}
	for i := range 100 {
		facts.Entries = append(facts.Entries, fleet.Entry{
			ClusterStatus: flotillav1.ClusterStatus{Name: fmt.Sprintf("member-%03d", i), Ready: metav1.ConditionTrue, ObservedGeneration: 7},
			Fate:          fleet.FateApply, Visible: true, Applied: true,
		})
	}
	return facts
}

// TestAllocations_when_all_is_well bounds what the conditions allocate when there is nothing to say.
func TestAllocations_when_all_is_well(t *testing.T) {
	facts := hundred()
	if got := testing.AllocsPerRun(100, func() { Of(facts) }); got > 30 {
		t.Errorf("%.0f allocations, want at most 30", got)
	}
}

func BenchmarkOf(b *testing.B) {
	facts := hundred()
	b.ReportAllocs()
	for b.Loop() {
		if conditions := Of(facts); conditions[0].Status != metav1.ConditionTrue {
			b.Fatal(conditions)
		}
	}
}
