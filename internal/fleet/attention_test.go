// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

func TestCutAttention_drops_no_orphan(t *testing.T) {
	items := func(orphans, unwell int) (all []flotillav1.Attention) {
		for i := range unwell {
			all = append(all, flotillav1.Attention{Kind: "Redis", Name: fmt.Sprint("unwell-", i), Reason: flotillav1.ReasonPending, Since: sanitize.Moment(noon)})
		}
		for i := range orphans {
			all = append(all, flotillav1.Attention{Kind: "Redis", Name: fmt.Sprint("orphan-", i), Reason: flotillav1.ReasonOrphaned, Since: sanitize.Moment(noon)})
		}
		return all
	}
	for _, tc := range []struct{ orphans, unwell, want int }{{0, 30, 20}, {5, 30, 20}, {21, 30, 21}, {25, 0, 25}, {1200, 5, 1000}} {
		kept := CutAttention(items(tc.orphans, tc.unwell))
		orphans := 0
		for _, item := range kept {
			if IsOrphan(item) {
				orphans++
			}
		}
		if len(kept) != tc.want || orphans != min(tc.orphans, MaxOrphans) {
			t.Errorf("of %d orphaned and %d unwell, %d are kept, %d of them orphaned", tc.orphans, tc.unwell, len(kept), orphans)
		}
	}
}
