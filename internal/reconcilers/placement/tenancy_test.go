// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func TestReconcile_respects_who_may_place_in_a_member(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	allow := func(namespaces []string) {
		f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Namespaces = namespaces })
	}
	allow([]string{"", "another-team"})
	selected := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Placement = &flotillav1.Placement{All: true} })
	f.settle(selected)
	f.get(f.hub, selected)
	if len(selected.Status.PlacedIn) != 0 || f.get(f.member, copyOf(selected)) {
		t.Errorf("a selector chose a member that does not allow the namespace: placed in %v", selected.Status.PlacedIn)
	}

	named := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Placement = &flotillav1.Placement{Clusters: []string{eu1}} })
	f.settle(named)
	f.wantOutcome(named, flotillav1.ReasonNamespaceNotAllowed)
	if f.get(f.member, copyOf(named)) {
		t.Error("a name overruled the registration")
	}

	allow(nil)
	f.settle(named)
	f.wantOutcome(named, "")
	f.settle(selected)
	allow([]string{})
	for _, redis := range []*flotillav1.Redis{named, selected} {
		update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(5)) })
		f.settle(redis)
		f.wantOutcome(redis, flotillav1.ReasonNamespaceNotAllowed)
		placed := copyOf(redis)
		if !f.get(f.member, placed) || placed.Spec.Replicas != nil && *placed.Spec.Replicas == 5 {
			t.Errorf("want the copy kept as it was, got %+v", placed.Spec.Replicas)
		}
	}
}
