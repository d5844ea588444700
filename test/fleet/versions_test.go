// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// versions judges every version of our objects that a watch shows, on the hub and in the members, as long as a run lasts.
type versions struct {
	mu       sync.Mutex
	seen     int
	problems []string
}

// watchVersions begins to watch. A watch that ends is begun again.
func (f *fleet) watchVersions(t *testing.T) *versions {
	t.Helper()
	logf.SetLogger(logr.Discard())
	v := &versions{}
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	for name, config := range f.configs {
		objects := []client.Object{&flotillav1.Redis{}, &flotillav1.NodePool{}}
		judge := judgeCopy
		if name == "hub" {
			objects, judge = append(objects, &flotillav1.MemberCluster{}), judgeHub
		} else if !slices.Contains(f.registered(), name) {
			// What is wanted of this one are other things, and it may lack our kinds.
			continue
		}
		shown, err := cache.New(config, cache.Options{Scheme: testenv.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			var informer cache.Informer
			NewWithT(t).Eventually(func() (err error) {
				// The kinds may have been made a moment ago.
				informer, err = shown.GetInformer(ctx, object, cache.BlockUntilSynced(false))
				return err
			}, 30*time.Second, 200*time.Millisecond).Should(Succeed(), "watching %T in %s", object, name)
			note := func(before, now any) {
				old, _ := before.(client.Object)
				v.note(name, now.(client.Object), judge(old, now.(client.Object)))
			}
			handler := toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(now any) { note(nil, now) },
				UpdateFunc: func(before, now any) {
					if before.(client.Object).GetResourceVersion() != now.(client.Object).GetResourceVersion() {
						note(before, now)
					}
				},
			}
			if _, err := informer.AddEventHandler(handler); err != nil {
				t.Fatal(err)
			}
		}
		watching.Go(func() { _ = shown.Start(ctx) })
	}
	return v
}

func (v *versions) note(cluster string, object client.Object, problems []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen++
	for _, problem := range problems {
		v.problems = append(v.problems, fmt.Sprintf("%s: %T %s version %s: %s", cluster, object, client.ObjectKeyFromObject(object), object.GetResourceVersion(), problem))
	}
}

// expectRight fails for each version that no watcher should have seen.
func (v *versions) expectRight(t *testing.T) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	t.Logf("%d versions were judged", v.seen)
	if v.seen == 0 {
		t.Error("no version was seen")
	}
	for _, problem := range v.problems[:min(len(v.problems), 20)] {
		t.Error(problem)
	}
}

// judgeHub says what is wrong with a version of an object on the hub; before is the one before it, or nil.
func judgeHub(before, now client.Object) []string {
	if before != nil && before.GetUID() != now.GetUID() {
		before = nil
	}
	problems := judgeCopy(before, now)
	if before != nil && sameBut(before, now) {
		problems = append(problems, "nothing but its version has changed")
	}
	if _, ok := now.(*flotillav1.MemberCluster); ok {
		if before != nil {
			problems = append(problems, judgeConditions(conditionsOf(before), conditionsOf(now), now.(*flotillav1.MemberCluster).Status.ObservedGeneration)...)
		}
		return problems
	}
	is, same := rollUpOf(now), false
	problems = append(problems, judgeCounts(is.FleetStatus, is.observed, is.entries)...)
	if is.ClustersOmitted == 0 && (is.sum != is.total || is.sumReady != is.ready) {
		problems = append(problems, fmt.Sprintf("%s %d of %d, the entries add up to %d of %d", is.counted, is.ready, is.total, is.sumReady, is.sum))
	}
	var old []metav1.Condition
	if before != nil {
		old, same = conditionsOf(before), equality.Semantic.DeepEqual(rollUpOf(before).written, is.written)
	}
	problems = append(problems, judgeConditions(old, conditionsOf(now), is.observed)...)
	return append(problems, judgePace(before, now, same)...)
}

// rollUp is what is judged of a status that is added up.
type rollUp struct {
	flotillav1.FleetStatus
	observed int64
	entries  int
	// counted are replicas or nodes: how many there are, and ready ones, in total and by the entries that can be seen.
	counted                     string
	total, ready, sum, sumReady int32
	// written is the status without what placement writes, and without the counts of a rollout, whose end only removes a field.
	written any
}

// add adds an entry unless it cannot be seen.
func (r *rollUp) add(known metav1.ConditionStatus, count, ready int32) {
	if known != metav1.ConditionUnknown {
		r.sum, r.sumReady = r.sum+count, r.sumReady+ready
	}
}

func rollUpOf(object client.Object) rollUp {
	switch object := object.(type) {
	case *flotillav1.Redis:
		status := object.Status
		r := rollUp{
			FleetStatus: status.FleetStatus, observed: status.ObservedGeneration, entries: len(status.Clusters),
			counted: "replicas", total: status.Replicas, ready: status.ReadyReplicas,
		}
		for _, entry := range status.Clusters {
			if entry.Reason == flotillav1.ReasonLeaving {
				// What it asks for is not asked for here.
				continue
			}
			r.add(entry.Ready, entry.Replicas, entry.ReadyReplicas)
		}
		status.PlacedIn, status.Choice, status.Departing, status.Recreated, status.Trials, status.Change, status.Rollout = nil, "", nil, nil, nil, nil, nil
		r.written = status
		return r
	case *flotillav1.NodePool:
		status := object.Status
		r := rollUp{
			FleetStatus: status.FleetStatus, observed: status.ObservedGeneration, entries: len(status.Clusters),
			counted: "nodes", total: status.NodeCount, ready: status.ReadyNodes,
		}
		for _, entry := range status.Clusters {
			r.add(entry.Ready, entry.NodeCount, entry.ReadyNodes)
		}
		status.PlacedIn, status.Choice, status.Departing, status.Recreated, status.Trials, status.Change, status.Rollout = nil, "", nil, nil, nil, nil, nil
		r.written = status
		return r
	}
	return rollUp{}
}

// judgeCopy says what is wrong with a version of any object of ours: what GitOps tools take for done must be.
func judgeCopy(_, now client.Object) []string {
	health, err := testenv.HealthOf(now)
	if err != nil {
		return []string{err.Error()}
	}
	if health == testenv.Current && conditionStatus(conditionsOf(now), flotillav1.ConditionReady) != string(metav1.ConditionTrue) {
		return []string{fmt.Sprintf("GitOps tools take it for done; its conditions are %+v", conditionsOf(now))}
	}
	return nil
}

func conditionsOf(object client.Object) []metav1.Condition {
	switch object := object.(type) {
	case *flotillav1.Redis:
		return object.Status.Conditions
	case *flotillav1.NodePool:
		return object.Status.Conditions
	case *flotillav1.MemberCluster:
		return object.Status.Conditions
	}
	return nil
}

// sameBut says that two versions differ in nothing that means anything.
func sameBut(before, now client.Object) bool {
	strip := func(object client.Object) runtime.Object {
		stripped := object.DeepCopyObject().(client.Object)
		stripped.SetResourceVersion("")
		stripped.SetManagedFields(nil)
		return stripped
	}
	return equality.Semantic.DeepEqual(strip(before), strip(now))
}

func judgeCounts(status flotillav1.FleetStatus, observed int64, entries int) []string {
	counts := status.ClusterCounts
	switch {
	case counts == nil && observed > 0:
		return []string{"its counts are blank"}
	case counts == nil:
		return nil
	case counts.Ready+counts.NotReady+counts.Unknown != counts.Desired, counts.Applied > counts.Desired, int32(entries)+status.ClustersOmitted != counts.Desired:
		return []string{fmt.Sprintf("its counts do not add up: %+v, %d entries, %d omitted", *counts, entries, status.ClustersOmitted)}
	}
	return nil
}

func judgeConditions(before, now []metav1.Condition, observed int64) []string {
	if len(now) == 0 && (observed > 0 || len(before) > 0) {
		return []string{"its conditions are blank"}
	}
	for _, condition := range before {
		if conditionStatus(now, condition.Type) == "" && condition.Type == flotillav1.ConditionReady {
			return []string{"it has lost condition " + condition.Type}
		}
	}
	return nil
}

// judgePace expects a second between two writes of roll-up. Whole seconds are compared, because that is what is stored. A
// write that only removes fields is not noted in managedFields.
func judgePace(before, now client.Object, same bool) []string {
	at := func(object client.Object) (last time.Time) {
		if object == nil {
			return last
		}
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == "flotilla-rollup" && entry.Subresource == "status" && entry.Time != nil {
				last = entry.Time.Time
			}
		}
		return last
	}
	if !same && !at(before).IsZero() && at(before).Equal(at(now)) {
		return []string{fmt.Sprintf("it was written twice in the second of %s:\n%s", at(now).UTC().Format(time.TimeOnly), cmp.Diff(rollUpOf(before).written, rollUpOf(now).written))}
	}
	return nil
}

func TestJudgeHub(t *testing.T) {
	noon := metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	right := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 2, ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "flotilla-rollup", Subresource: "status", Time: &noon},
	}}}
	right.Status = flotillav1.RedisStatus{ObservedGeneration: 2, Replicas: 3, ReadyReplicas: 2, Conditions: []metav1.Condition{{Type: "Ready", Status: "True"}}}
	right.Status.ClusterCounts = &flotillav1.ClusterCounts{Desired: 2, Applied: 2, Ready: 1, Unknown: 1}
	for _, entry := range []flotillav1.RedisClusterStatus{{Replicas: 3, ReadyReplicas: 2}, {Replicas: 5, ReadyReplicas: 5}} {
		entry.Ready = metav1.ConditionTrue
		if len(right.Status.Clusters) > 0 {
			entry.Ready = metav1.ConditionUnknown
		}
		right.Status.Clusters = append(right.Status.Clusters, entry)
	}
	later := func(change func(*flotillav1.Redis)) *flotillav1.Redis {
		now, after := right.DeepCopy(), metav1.NewTime(noon.Add(time.Second))
		now.ResourceVersion, now.ManagedFields[0].Time = "8", &after
		change(now)
		return now
	}
	for name, tc := range map[string]struct {
		now  *flotillav1.Redis
		want int
	}{
		"a number":       {later(func(r *flotillav1.Redis) { r.Status.ReadyReplicas, r.Status.Clusters[0].ReadyReplicas = 3, 3 }), 0},
		"another record": {later(func(r *flotillav1.Redis) { r.Status.PlacedIn, r.ManagedFields = []string{"eu-1"}, right.ManagedFields }), 0},
		"another choice": {later(func(r *flotillav1.Redis) { r.Status.Choice, r.ManagedFields = "b", right.ManagedFields }), 0},
		"another departure": {later(func(r *flotillav1.Redis) {
			r.Status.Departing, r.ManagedFields = []flotillav1.Departure{{Name: "eu-1"}}, right.ManagedFields
		}), 0},
		"a copy that is made again": {later(func(r *flotillav1.Redis) {
			r.Status.Recreated, r.ManagedFields = []flotillav1.Recreation{{Name: "eu-1"}}, right.ManagedFields
		}), 0},
		"another object":         {later(func(r *flotillav1.Redis) { r.UID, r.Status = "v", flotillav1.RedisStatus{ObservedGeneration: -1} }), 0},
		"nothing":                {later(func(*flotillav1.Redis) {}), 1},
		"a sum that is wrong":    {later(func(r *flotillav1.Redis) { r.Status.ReadyReplicas = 7 }), 1},
		"counts that are wrong":  {later(func(r *flotillav1.Redis) { r.Status.ClusterCounts.Ready = 2 }), 1},
		"an entry too few":       {later(func(r *flotillav1.Redis) { r.Status.Clusters = r.Status.Clusters[:1] }), 1},
		"blank counts":           {later(func(r *flotillav1.Redis) { r.Status.ClusterCounts = nil }), 1},
		"blank conditions":       {later(func(r *flotillav1.Redis) { r.Status.Conditions = nil }), 2},
		"twice within a second":  {later(func(r *flotillav1.Redis) { r.Status.DesiredReplicas, r.ManagedFields = 4, right.ManagedFields }), 1},
		"a status that is reset": {later(func(r *flotillav1.Redis) { r.Status = flotillav1.RedisStatus{} }), 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judgeHub(right, tc.now); len(got) != tc.want {
				t.Errorf("want %d problems, got %v", tc.want, got)
			}
		})
	}
}
