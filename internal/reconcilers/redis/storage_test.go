// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// claimOf is a bound claim of a size, before it is changed.
func claimOf(ordinal int32, size string, mutate ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	storage := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claimName("web", ordinal)}}
	claim.Spec.Resources.Requests = storage.DeepCopy()
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage}
	for _, m := range mutate {
		m(claim)
	}
	return claim
}

func TestStorage(t *testing.T) {
	type claim = corev1.PersistentVolumeClaim
	lost := func(c *claim) { c.Status.Phase = corev1.ClaimLost }
	pending := func(c *claim) { c.Status.Phase, c.Status.Capacity = corev1.ClaimPending, nil }
	deleting := func(c *claim) { c.DeletionTimestamp = &metav1.Time{Time: reportedAt} }
	asked := func(c *claim) { c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi") }
	infeasible := func(c *claim) {
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizeInfeasible}
	}
	for name, tc := range map[string]struct {
		claims  []*claim
		refused string
		want    string
		says    string
		grow    []string
		// risks are the Pods that must not be replaced.
		risks []string
	}{
		"well":                      {claims: []*claim{claimOf(0, "2Gi"), claimOf(1, "2Gi")}, want: "True Bound"},
		"larger than asked for":     {claims: []*claim{claimOf(0, "4Gi"), claimOf(1, "2Gi")}, want: "True Larger", says: "left so because volumes do not shrink: data-web-0"},
		"not there":                 {claims: []*claim{claimOf(0, "2Gi")}, want: "False VolumesPending", says: "data-web-1"},
		"not bound":                 {claims: []*claim{claimOf(0, "2Gi"), claimOf(1, "1Gi", pending)}, want: "False VolumesPending", says: "data-web-1"},
		"to grow":                   {claims: []*claim{claimOf(0, "1Gi"), claimOf(1, "1Gi")}, want: "False Expanding", grow: []string{"data-web-0", "data-web-1"}},
		"growing":                   {claims: []*claim{claimOf(0, "1Gi", asked), claimOf(1, "2Gi")}, want: "False Expanding", says: "data-web-0"},
		"a capacity not known":      {claims: []*claim{claimOf(0, "2Gi", func(c *claim) { c.Status.Capacity = nil }), claimOf(1, "2Gi")}, want: "True Bound"},
		"growth refused":            {claims: []*claim{claimOf(0, "1Gi"), claimOf(1, "2Gi")}, refused: "The class forbids it", want: "False ExpansionRefused", says: "The class forbids it", grow: []string{"data-web-0"}},
		"growth infeasible":         {claims: []*claim{claimOf(0, "1Gi", asked, infeasible), claimOf(1, "2Gi")}, want: "False ExpansionInfeasible", says: "data-web-0"},
		"a replica's volume lost":   {claims: []*claim{claimOf(0, "2Gi"), claimOf(1, "2Gi", lost)}, want: "False VolumeLost", says: "data-web-1", risks: []string{"web-1"}},
		"the primary's volume lost": {claims: []*claim{claimOf(0, "2Gi", lost), claimOf(1, "2Gi", deleting)}, want: "False VolumeLost", says: "data-web-0", risks: []string{"web-0"}},
		"a replica's claim deleted": {claims: []*claim{claimOf(0, "2Gi"), claimOf(1, "1Gi", deleting)}, want: "False VolumeDeleting", says: "data-web-1"},
		"the primary's deleted":     {claims: []*claim{claimOf(0, "1Gi", deleting), claimOf(1, "2Gi")}, want: "False VolumeDeleting", says: "data-web-0", risks: []string{"web-0"}},
		"the primary's gone":        {claims: []*claim{nil, claimOf(1, "2Gi")}, want: "False VolumesPending", says: "data-web-0", risks: []string{"web-0"}},
		"beyond the replicas":       {claims: []*claim{claimOf(0, "2Gi"), claimOf(1, "2Gi"), claimOf(2, "1Gi", lost)}, want: "True Bound"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(func(s *state) {
				s.spec.Storage.Size = resource.MustParse("2Gi")
				s.growthRefused = tc.refused
				s.claims = map[int32]*claim{}
				for ordinal, c := range tc.claims {
					if c != nil {
						s.claims[int32(ordinal)] = c
					}
				}
			})
			p := planFor(s)
			got := storageReady(s)
			if value := string(got.Status) + " " + got.Reason; value != tc.want || !strings.Contains(got.Message, tc.says) {
				t.Errorf("StorageReady is %s (%s), want %s saying %q", value, got.Message, tc.want, tc.says)
			}
			var grow, risks []string
			for _, c := range p.grow {
				grow = append(grow, c.Name)
			}
			for _, pod := range s.pods {
				if pod.risk != nil {
					risks = append(risks, pod.name)
				}
			}
			if diff := cmp.Diff(tc.grow, grow); diff != "" {
				t.Errorf("claims to grow differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.risks, risks); diff != "" {
				t.Errorf("Pods at risk differ (-want +got):\n%s", diff)
			}
			s.spec.Paused = true
			if p := planFor(s); len(p.grow) > 0 {
				t.Error("a paused Redis grows its volumes")
			}
		})
	}
}

func TestVolumeRisk_is_only_about_data_that_is_kept(t *testing.T) {
	s := redisspec.Of(redisOf(func(s *flotillav1.RedisSpec) {
		s.Persistence = flotillav1.RedisPersistence{Mode: flotillav1.RedisPersistenceNone, AcceptDataLoss: true}
	}))
	if risk := volumeRisk(&s, "web-0", true, nil); risk != nil {
		t.Errorf("a Redis without persistence is not replaced: %v", risk)
	}
}
