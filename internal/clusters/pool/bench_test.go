// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// benchPublication is a member that is ready, and its MemberCluster that says so.
func benchPublication() (*flotillav1.MemberCluster, publication) {
	wanted := publication{
		snapshot: clusters.Snapshot{Name: "eu-1", State: clusters.StateReady, Decided: true, UID: "u", Labels: map[string]string{"region": "eu", "tier": "gold"}},
		version:  "v1.34.0", endpoint: "api.eu-1.example.com:6443",
		secret:   registration.SecretRef{Namespace: "flotilla-clusters", Name: "eu-1", UID: "u1"},
		verdicts: map[string]verdict.Verdict{},
	}
	for _, conditionType := range reported {
		wanted.verdicts[conditionType] = verdict.Good(flotillav1.ReasonProbeSucceeded, "All is well")
	}
	object := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}}
	describe(object, wanted)
	report(object, wanted, time.Now())
	return object, wanted
}

// unchanged is what is done before it is known that nothing has to be published.
func unchanged(t testing.TB, object *flotillav1.MemberCluster, wanted publication) {
	if !describes(object, wanted) {
		t.Fatal("labels or the reference change")
	}
	desired := object.DeepCopy()
	report(desired, wanted, time.Now())
	if !equality.Semantic.DeepEqual(desired.Status, object.Status) {
		t.Fatal("the status changes")
	}
}

// TestAllocations_when_nothing_changes bounds what it takes to see that a member is as it was.
func TestAllocations_when_nothing_changes(t *testing.T) {
	object, wanted := benchPublication()
	if got := testing.AllocsPerRun(100, func() { unchanged(t, object, wanted) }); got > 130 {
		t.Errorf("%.0f allocations, want at most 130", got)
	}
}

func BenchmarkPublish_unchanged(b *testing.B) {
	object, wanted := benchPublication()
	b.ReportAllocs()
	for b.Loop() {
		unchanged(b, object, wanted)
	}
}
