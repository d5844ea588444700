// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// consentSteps are the actions of people and clusters in these tests. A step that is not followed by "settle" is observed
// together with the next one, as after a restart of the manager.
func consentSteps(f *fixture, redis *flotillav1.Redis) map[string]func() {
	choose := func(change func(*flotillav1.Placement)) func() {
		return func() { update(f, f.hub, redis, func(r *flotillav1.Redis) { change(r.Spec.Placement) }) }
	}
	member := func(change func(*clusters.Snapshot)) func() {
		return func() { f.directory.Change(eu1, change) }
	}
	selects := func(key, value string) func(*flotillav1.Placement) {
		return func(p *flotillav1.Placement) {
			*p = flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
		}
	}
	return map[string]func(){
		"settle":      func() { f.settle(redis) },
		"restart":     func() { f.restartFixture() },
		"drop label":  member(func(s *clusters.Snapshot) { s.Labels = map[string]string{"tier": "gold"} }),
		"other label": member(func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "eu", "tier": "gold"} }),
		"label back":  member(func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "eu"} }),
		"pause":       member(func(s *clusters.Snapshot) { s.Paused = true }),
		"resume":      member(func(s *clusters.Snapshot) { s.Paused = false }),
		"away":        member(func(s *clusters.Snapshot) { s.State = clusters.StateUnreachable }),
		"return":      member(func(s *clusters.Snapshot) { s.State = clusters.StateReady }),
		"freeze":      member(func(s *clusters.Snapshot) { s.Frozen = true }),
		"thaw":        member(func(s *clusters.Snapshot) { s.Frozen = false }),
		"scale": func() {
			update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(*r.Spec.Replicas + 1) })
		},
		"bump":         func() { update(f, f.hub, redis, setImage("redis:8.0")) },
		"choose all":   choose(func(p *flotillav1.Placement) { *p = flotillav1.Placement{All: true} }),
		"choose eu":    choose(selects("region", "eu")),
		"choose us":    choose(selects("region", "us")),
		"name another": choose(func(p *flotillav1.Placement) { p.Clusters = append(p.Clusters, "us-1") }),
		"name only":    choose(func(p *flotillav1.Placement) { *p = flotillav1.Placement{Clusters: []string{"us-1"}} }),
	}
}

// restartFixture drops everything that a process keeps in memory.
func (f *fixture) restartFixture() {
	f.r = &Reconciler{
		Kind: f.r.Kind, Hub: f.r.Hub, HubReader: f.r.HubReader, Members: f.r.Members, Table: fleet.NewTable(), Events: f.r.Events,
		Clock: f.r.Clock, Options: f.r.Options,
	}
}

func TestReconcile_only_a_change_of_the_choice_removes_copies(t *testing.T) {
	tests := map[string]struct {
		steps []string
		gone  bool
	}{
		"label dropped, then scaled":                        {steps: []string{"drop label", "settle", "scale"}},
		"label dropped, then an image bump":                 {steps: []string{"drop label", "settle", "bump"}},
		"bump while paused, then label dropped":             {steps: []string{"pause", "bump", "settle", "drop label", "settle", "resume"}},
		"bump while frozen, then label dropped":             {steps: []string{"freeze", "bump", "settle", "drop label", "settle", "thaw"}},
		"bump while away, then label dropped":               {steps: []string{"away", "bump", "settle", "drop label", "settle", "return"}},
		"bump and label dropped with the manager down":      {steps: []string{"bump", "drop label", "restart"}},
		"label dropped and bump with the manager down":      {steps: []string{"drop label", "bump", "restart"}},
		"choice and label changed with the manager down":    {steps: []string{"choose us", "drop label", "restart"}},
		"label and choice changed with the manager down":    {steps: []string{"drop label", "choose us", "restart"}},
		"narrowed to a label that was dropped meanwhile":    {steps: []string{"choose all", "settle", "choose eu", "drop label", "restart"}},
		"narrowed while away, then label dropped":           {steps: []string{"choose all", "settle", "away", "choose eu", "settle", "drop label", "settle", "restart", "return"}},
		"label and choice to and fro while away":            {steps: []string{"drop label", "choose all", "settle", "away", "label back", "settle", "choose eu", "settle", "drop label", "settle", "return"}},
		"label dropped and back, then dropped again":        {steps: []string{"drop label", "settle", "label back", "settle", "bump", "drop label", "settle"}},
		"taken out while away, chosen again, label dropped": {steps: []string{"away", "choose us", "settle", "choose eu", "settle", "drop label", "settle", "return"}},
		"choice changed":                                     {steps: []string{"choose us"}, gone: true},
		"choice changed with the manager down":               {steps: []string{"choose us", "restart"}, gone: true},
		"choice changed while paused":                        {steps: []string{"pause", "choose us", "settle", "restart", "settle", "resume"}, gone: true},
		"choice changed while away, then a bump":             {steps: []string{"away", "choose us", "settle", "bump", "settle", "return"}, gone: true},
		"choice changed while away, then its label":          {steps: []string{"away", "choose us", "settle", "drop label", "settle", "return"}, gone: true},
		"another label, then the choice":                     {steps: []string{"other label", "settle", "choose us"}, gone: true},
		"listed as leaving, then the choice":                 {steps: []string{"drop label", "settle", "name another"}, gone: true},
		"listed as leaving while away, then the choice":      {steps: []string{"away", "drop label", "settle", "restart", "name another", "settle", "return"}, gone: true},
		"listed as leaving after doubt, then the choice":     {steps: []string{"drop label", "choose us", "restart", "settle", "name another"}, gone: true},
		"only other clusters named":                          {steps: []string{"name only"}, gone: true},
		"only other clusters named, label dropped meanwhile": {steps: []string{"drop label", "name only", "restart"}, gone: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fleet.Redis)
			redis := f.newRedis()
			f.settle(redis)
			steps := consentSteps(f, redis)
			for _, step := range tc.steps {
				if steps[step] == nil {
					t.Fatalf("there is no step %q", step)
				}
				steps[step]()
			}
			f.settle(redis)
			if there := f.get(f.member, copyOf(redis)); there == tc.gone {
				t.Errorf("copy there: %v, want %v", there, !tc.gone)
			}
			f.wantNoWrites(redis)
		})
	}
}
