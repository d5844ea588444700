// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

// rebuilt makes the next report compute and sum up all rows.
func (v *view) rebuilt(kind Kind) {
	v.ledger = newLedger(kind)
	for name, found := range v.clusters {
		found.counted, v.stale[name] = false, true
	}
}

// roll sets the state of a copy in the rollout of the hub object.
func (v *viewed) roll(name string) {
	copied := v.shelves[name].redis
	if copied == nil {
		return
	}
	copied = copied.DeepCopy()
	specs, err := fleet.NewSpecs(fleet.Redis, v.redis)
	if err != nil {
		return
	}
	template, err := specs.Template()
	if err != nil {
		return
	}
	copied.Annotations[flotillav1.AnnotationSpecHash] = []string{v.hash(), "before"}[v.random.IntN(2)]
	copied.Annotations[flotillav1.AnnotationRollout] = []string{template, "before"}[v.random.IntN(2)]
	copied.Annotations[flotillav1.AnnotationSpecChangedAt] = noon.Format(time.RFC3339)
	if v.random.IntN(2) == 0 {
		trials := fleet.TrialsOf(v.redis)
		trials[name] = fleet.Trial{Hash: copied.Annotations[flotillav1.AnnotationSpecHash], Since: noon}
		delete(trials, v.names[v.random.IntN(len(v.names))])
		v.redis = v.redis.DeepCopy()
		v.redis.Status.Trials = trials.Record()
	}
	v.shelves[name].redis = copied
	v.r.requestsOfCopy(context.Background(), multicluster.ClusterName(name), nil, copied)
}

// wave returns the wave that results from the turns of all clusters.
func (v *viewed) wave(seen state, now time.Time) fleet.Wave {
	var turns []fleet.Turn
	chosen := 0
	for _, found := range seen.view.clusters {
		chosen += number(found.chosen)
		if turn, ok := fleet.TurnOf(found.Observation, v.redis.Generation); ok && found.placed {
			turns = append(turns, turn)
		}
	}
	return fleet.NewWaves(v.redis, seen.view.template, chosen).Next(turns, now)
}

func TestReport_adds_up_what_making_every_row_would(t *testing.T) {
	for _, members := range []int{6, 130} {
		for seed := range uint64(15) {
			v := newViewed(t, seed, members)
			whole := &Reconciler{
				Kind: v.r.Kind, Hub: v.r.Hub, Members: v.r.Members, Table: v.r.Table, Clock: v.r.Clock, HubID: v.r.HubID, views: newViews(),
			}
			v.directory.Subscribe(func(name multicluster.ClusterName) { whole.requestsFor(context.Background(), name) })
			v.redis.Status.PlacedIn = slices.Sorted(slices.Values(v.names))
			for _, name := range v.names {
				v.put(name)
			}
			now := noon
			for step := range 100 {
				for range v.random.IntN(5) {
					v.change()
					v.roll(v.names[v.random.IntN(len(v.names))])
				}
				now = now.Add(time.Duration(v.random.IntN(300)) * time.Second)
				for _, name := range v.names {
					whole.views.mark(client.ObjectKeyFromObject(v.redis), name)
				}
				want, got := v.redis.DeepCopy(), redisKind.draft(v.redis)
				all, part := v.observe(whole), v.observe(v.r)
				if all.tooEarly() != part.tooEarly() {
					t.Fatalf("seed %d, step %d: too early: %v, want %v", seed, step, part.tooEarly(), all.tooEarly())
				}
				if part.tooEarly() {
					continue
				}
				all.view.rebuilt(redisKind)
				all.stale = all.view.outdated(redisKind, v.redis)
				wave := v.wave(part, now)
				report(redisKind, want, all, now)
				if diff := cmp.Diff(wave, report(redisKind, got, part, now)); invalid(part) == nil && diff != "" {
					t.Fatalf("seed %d, step %d: wave (-whole +ledger):\n%s", seed, step, diff)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("seed %d, step %d (-whole +ledger):\n%s", seed, step, diff)
				}
				if all, part := v.news(all), v.news(part); !cmp.Equal(all, part) {
					t.Fatalf("seed %d, step %d: news %v, want %v", seed, step, part, all)
				}
				// A write may fail.
				if v.random.IntN(4) > 0 {
					v.redis = got.(*flotillav1.Redis)
				}
			}
		}
	}
}

func invalid(s state) error { return s.invalid }

// news returns the events that would follow a report.
func (v *viewed) news(s state) []string {
	unsaid := s.view.unsaidClusters()
	var all []string
	for _, item := range transitions(changes(unsaid, redisKind.Entries(v.redis), v.redis.Status.ClustersOmitted)) {
		all = append(all, fmt.Sprint(item.reason, item.names))
	}
	s.view.said(unsaid)
	return all
}

func TestReport_makes_only_the_rows_that_may_differ(t *testing.T) {
	v := newViewed(t, 1, 400)
	for _, name := range v.names {
		v.put(name)
		v.shelves[name].redis.Status.Conditions = ready("True", flotillav1.ReasonAllReplicasReady, "")
		v.shelves[name].redis.Annotations[flotillav1.AnnotationSpecHash] = v.hash()
	}
	rows := func() int {
		t.Helper()
		seen := v.observe(v.r)
		v.redis = redisKind.draft(v.redis).(*flotillav1.Redis)
		report(redisKind, v.redis, seen, noon)
		return len(seen.stale)
	}
	if made := rows(); made != len(v.names) {
		t.Errorf("the first report makes %d rows", made)
	}
	rows()
	v.directory.Set(snapshotOf("member-399", clusters.StateUnreachable, true))
	if made := rows(); made > fleet.MaxEntries+1 {
		t.Errorf("a report after one change makes %d rows", made)
	}
}

func TestSums_are_what_adding_up_all_lists_gives(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	sums, groups := resourceSums{}, groupSums{}
	lists, grouped := []corev1.ResourceList{}, [][]flotillav1.NodeGroup{}
	for step := range 400 {
		if i := len(lists) - 1; i > 60 || i >= 0 && random.IntN(3) == 0 {
			sums.count(lists[i], -1)
			groups.count(grouped[i], -1)
			lists, grouped = lists[:i], grouped[:i]
		} else {
			list, group := corev1.ResourceList{}, []flotillav1.NodeGroup{}
			for range random.IntN(6) {
				name := fmt.Sprintf("example.com/r%02d", random.IntN(80))
				list[corev1.ResourceName(name)] = *resource.NewMilliQuantity(random.Int64N(1<<40)-1000, resource.DecimalSI)
				group = append(group, flotillav1.NodeGroup{Name: name[12:], NodeCount: random.Int32() - 1000, ReadyNodes: random.Int32N(9)})
			}
			list[corev1.ResourceMemory] = resource.MustParse([]string{"16Gi", "0", "-1Ki", "340282366920938463463374607431768211456Ki"}[random.IntN(4)])
			sums.count(list, 1)
			groups.count(group, 1)
			lists, grouped = append(lists, list), append(grouped, group)
		}
		var want corev1.ResourceList
		var wantGroups []flotillav1.NodeGroup
		for i := range lists {
			want, wantGroups = sanitize.AddResources(want, lists[i]), sanitize.AddGroups(wantGroups, grouped[i])
		}
		text := func(list corev1.ResourceList) string {
			data, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		if diff := cmp.Diff(text(want), text(sums.list())); diff != "" {
			t.Fatalf("step %d (-lists +sums):\n%s", step, diff)
		}
		if diff := cmp.Diff(wantGroups, groups.list()); diff != "" {
			t.Fatalf("step %d (-lists +sums):\n%s", step, diff)
		}
	}
}
