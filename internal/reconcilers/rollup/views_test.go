// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// shelf is a cache with one Redis at most; broken is one that cannot be read.
type shelf struct {
	client.Client
	redis  *flotillav1.Redis
	broken bool
	reads  *int
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	*s.reads++
	switch {
	case s.broken:
		return fmt.Errorf("the cache of %s is broken", key)
	case s.redis == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "redises"}, key.Name)
	}
	*into.(*flotillav1.Redis) = *s.redis
	return nil
}

// noMemberClusters is a hub on which nothing has been published.
type noMemberClusters struct{ client.Client }

func (noMemberClusters) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "memberclusters"}, key.Name)
}

func (noMemberClusters) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}

// viewed is a roll-up of one hub object over members that change at random.
type viewed struct {
	t         *testing.T
	random    *rand.Rand
	r         *Reconciler
	directory *clusterstest.Directory
	shelves   map[string]*shelf
	redis     *flotillav1.Redis
	names     []string
	reads     int
}

func newViewed(t *testing.T, seed uint64, members int) *viewed {
	t.Helper()
	v := &viewed{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), shelves: map[string]*shelf{},
		directory: clusterstest.NewDirectory(),
	}
	v.redis = &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache", UID: "hub", Generation: 1}}
	v.redis.Spec.Placement = &flotillav1.Placement{All: true}
	for i := range members {
		name := fmt.Sprintf("member-%d", i)
		v.names = append(v.names, name)
		v.shelves[name] = &shelf{reads: &v.reads}
		v.directory.Engage(multicluster.ClusterName(name), uncached{client: v.shelves[name]})
		v.directory.Set(snapshotOf(name, clusters.StateReady, true))
	}
	v.r = &Reconciler{
		Kind: redisKind, Hub: noMemberClusters{}, Members: v.directory, Table: fleet.NewTable(), HubID: hubID, views: newViews(),
	}
	v.directory.Subscribe(func(name multicluster.ClusterName) { v.r.requestsFor(context.Background(), name) })
	v.r.Table.Subscribe(func(key fleet.ObjectKey, name string, _ fleet.Outcome) { v.r.views.mark(key.Object, name) })
	return v
}

// change makes one random change, with the events of the watches.
func (v *viewed) change() {
	name := v.names[v.random.IntN(len(v.names))]
	switch v.random.IntN(9) {
	case 0:
		states := []clusters.State{clusters.StateReady, clusters.StateUnreachable, clusters.StateAuthFailed}
		v.directory.Set(snapshotOf(name, states[v.random.IntN(len(states))], v.random.IntN(4) > 0))
	case 1:
		v.directory.Remove(multicluster.ClusterName(name))
	case 2, 3, 4:
		v.put(name)
	case 5:
		v.shelves[name].redis = nil
		v.r.views.mark(client.ObjectKeyFromObject(v.redis), name)
	case 6:
		v.r.Table.Set(fleet.ObjectKey{Kind: "Redis", Object: client.ObjectKeyFromObject(v.redis)}, name, fleet.Outcome{
			Generation: v.redis.Generation, Reason: []string{"", flotillav1.ReasonApplyFailed}[v.random.IntN(2)],
		})
	case 7:
		// The watch of a cache that could not be read restarts.
		v.shelves[name].broken = !v.shelves[name].broken
		v.r.views.mark(client.ObjectKeyFromObject(v.redis), name)
	default:
		v.place(name)
	}
}

// put makes a member report a state of the copy.
func (v *viewed) put(name string) {
	copied := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "cache", Generation: 1,
		Annotations: map[string]string{
			flotillav1.AnnotationHub: hubID, flotillav1.AnnotationPlacedFrom: "shop/cache",
			flotillav1.AnnotationHubUID: "hub", flotillav1.AnnotationHubGeneration: "1",
		},
	}}
	copied.Status.ObservedGeneration = 1
	copied.Status.ReadyReplicas = v.random.Int32N(4)
	copied.Status.Conditions = ready([]metav1.ConditionStatus{"True", "False"}[v.random.IntN(2)], flotillav1.ReasonReplicasNotReady, "")
	v.shelves[name].redis = copied
	v.r.requestsOfCopy(context.Background(), multicluster.ClusterName(name), nil, copied)
}

// place changes the hub object: its record, its placement, or its deletion.
func (v *viewed) place(name string) {
	changed := v.redis.DeepCopy()
	if v.random.IntN(3) > 0 {
		placed := map[string]bool{}
		for _, known := range changed.Status.PlacedIn {
			placed[known] = true
		}
		placed[name] = !placed[name]
		changed.Status.PlacedIn = nil
		for _, known := range v.names {
			if placed[known] {
				changed.Status.PlacedIn = append(changed.Status.PlacedIn, known)
			}
		}
		v.redis = changed
		return
	}
	changed.Generation++
	changed.Spec.Placement = []*flotillav1.Placement{
		{All: true}, {Clusters: []string{name}}, nil, {ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "not a value"}}},
	}[v.random.IntN(4)]
	v.redis = changed
}

func (v *viewed) observe(r *Reconciler) state {
	v.t.Helper()
	seen, err := r.observe(context.Background(), v.redis)
	if err != nil {
		v.t.Fatal(err)
	}
	return seen
}

// seen is the input of a report.
type seen struct {
	clusters                 []cluster
	invalid, invalidOverride error
	chosen, done, undecided  int
	open                     []string
	omitted                  int32
}

func seenIn(s state) seen {
	all := seen{
		invalid: s.invalid, invalidOverride: s.invalidOverride, omitted: s.omitted, chosen: s.view.chosen, done: s.view.done, undecided: s.view.undecided,
		open: slices.Sorted(maps.Keys(s.view.open)),
	}
	for _, name := range s.view.sorted() {
		all.clusters = append(all.clusters, *s.view.clusters[name])
	}
	return all
}

func TestObserve_a_view_shows_what_reading_everything_would(t *testing.T) {
	for seed := range uint64(40) {
		v := newViewed(t, seed, 6)
		for step := range 150 {
			for range v.random.IntN(4) {
				v.change()
			}
			whole := &Reconciler{Kind: v.r.Kind, Hub: v.r.Hub, Members: v.r.Members, Table: v.r.Table, Clock: v.r.Clock, HubID: v.r.HubID}
			want, got := v.observe(whole), v.observe(v.r)
			same := cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
			if diff := cmp.Diff(seenIn(want), seenIn(got), cmp.AllowUnexported(seen{}, cluster{}, redisNumbers{}, leader{}), cmpopts.IgnoreFields(cluster{}, "row", "counted", "kept"), same); diff != "" {
				t.Fatalf("seed %d, step %d (-everything +view):\n%s", seed, step, diff)
			}
		}
	}
}

func TestObserve_reads_only_what_has_changed(t *testing.T) {
	v := newViewed(t, 1, 50)
	v.observe(v.r)
	v.reads = 0
	v.observe(v.r)
	if v.reads != 0 {
		t.Errorf("a pass without a change reads %d copies", v.reads)
	}
	v.put("member-7")
	v.directory.Set(snapshotOf("member-8", clusters.StateReady, true))
	v.observe(v.r)
	if v.reads != 2 {
		t.Errorf("a pass after two changes reads %d copies", v.reads)
	}
}

func TestReport_a_cluster_that_the_list_left_out_keeps_its_numbers_when_it_goes_away(t *testing.T) {
	v := newViewed(t, 1, 120)
	const away = "member-99"
	for _, name := range v.names {
		v.put(name)
		v.shelves[name].redis.Status.ReadyReplicas = 3
		v.shelves[name].redis.Status.Conditions = ready("True", flotillav1.ReasonAllReplicasReady, "")
		v.shelves[name].redis.Annotations[flotillav1.AnnotationSpecHash] = v.hash()
	}
	listed := func() (flotillav1.RedisClusterStatus, bool) {
		v.redis = v.redis.DeepCopy()
		report(redisKind, v.redis, v.observe(v.r), noon)
		for _, entry := range v.redis.Status.Clusters {
			if entry.Name == away {
				return entry, true
			}
		}
		return flotillav1.RedisClusterStatus{}, false
	}
	if entry, found := listed(); found {
		t.Fatalf("the list has %+v", entry)
	}
	for range 2 {
		v.directory.Set(snapshotOf(away, clusters.StateUnreachable, true))
		entry, _ := listed()
		if entry.Ready != metav1.ConditionUnknown || entry.ReadyReplicas != 3 || entry.ObservedGeneration != 1 {
			t.Errorf("the entry is %+v", entry)
		}
		want := flotillav1.ClusterCounts{Desired: 120, Applied: 120, Ready: 119, Unknown: 1}
		if diff := cmp.Diff(&want, v.redis.Status.ClusterCounts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if v.redis.Status.ReadyReplicas != 119*3 {
			t.Errorf("the sum is %d", v.redis.Status.ReadyReplicas)
		}
	}
}

// hash returns the hash of the effective spec.
func (v *viewed) hash() string {
	v.t.Helper()
	specs, err := fleet.NewSpecs(fleet.Redis, v.redis)
	if err != nil {
		v.t.Fatal(err)
	}
	want, err := specs.For(v.names[0], nil)
	if err != nil {
		v.t.Fatal(err)
	}
	return want.Hash
}

func TestViews_a_change_during_a_pass_is_for_the_next_one(t *testing.T) {
	v := newViewed(t, 1, 3)
	key := client.ObjectKeyFromObject(v.redis)
	first, _ := v.r.views.take(key)
	if concerned := v.r.views.markAll("elsewhere", fleet.Member{Name: "elsewhere"}, true); len(concerned) != 1 {
		t.Errorf("%v is queued: a pass that is under way may come to choose the cluster", concerned)
	}
	first.begin(redisKind, v.redis)
	v.r.views.keep(key, first, nil)
	if _, changed := v.r.views.take(key); !cmp.Equal(changed, []string{"elsewhere"}) {
		t.Errorf("the next pass reads %v", changed)
	}
}

func TestViews_a_pass_is_asked_for_once(t *testing.T) {
	v := newViewed(t, 1, 3)
	key, member := client.ObjectKeyFromObject(v.redis), fleet.Member{Name: v.names[0]}
	if !v.r.views.mark(key, v.names[0]) {
		t.Error("nothing is asked for an object that no pass has read")
	}
	v.observe(v.r)
	for _, first := range []bool{true, false} {
		if asked := len(v.r.views.markAll(member.Name, member, true)) == 1; asked != first {
			t.Errorf("a pass is asked for: %v, want %v", asked, first)
		}
	}
	if v.r.views.mark(key, v.names[1]) {
		t.Error("another one is asked for before the first has begun")
	}
	_, changed := v.r.views.take(key)
	slices.Sort(changed)
	if !cmp.Equal(changed, v.names[:2]) {
		t.Errorf("the pass reads %v", changed)
	}
	if !v.r.views.mark(key, v.names[2]) {
		t.Error("nothing is asked for what changes after a pass has begun")
	}
}
