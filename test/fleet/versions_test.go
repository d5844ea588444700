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
	switch now := now.(type) {
	case *flotillav1.Redis:
		old, _ := before.(*flotillav1.Redis)
		if old == nil {
			old = &flotillav1.Redis{}
		}
		problems = append(problems, judgeCounts(now.Status.FleetStatus, now.Status.ObservedGeneration, len(now.Status.Clusters))...)
		var replicas, ready int32
		for _, entry := range now.Status.Clusters {
			if entry.Ready != metav1.ConditionUnknown {
				replicas, ready = replicas+entry.Replicas, ready+entry.ReadyReplicas
			}
		}
		if now.Status.ClustersOmitted == 0 && (replicas != now.Status.Replicas || ready != now.Status.ReadyReplicas) {
			problems = append(problems, fmt.Sprintf("replicas %d of %d, the entries add up to %d of %d", now.Status.ReadyReplicas, now.Status.Replicas, ready, replicas))
		}
		problems = append(problems, judgeConditions(old.Status.Conditions, now.Status.Conditions, now.Status.ObservedGeneration)...)
		problems = append(problems, judgePace(old, now, sameRollUp(old.Status, now.Status))...)
	case *flotillav1.NodePool:
		old, _ := before.(*flotillav1.NodePool)
		if old == nil {
			old = &flotillav1.NodePool{}
		}
		problems = append(problems, judgeCounts(now.Status.FleetStatus, now.Status.ObservedGeneration, len(now.Status.Clusters))...)
		var nodes, ready int32
		for _, entry := range now.Status.Clusters {
			if entry.Ready != metav1.ConditionUnknown {
				nodes, ready = nodes+entry.NodeCount, ready+entry.ReadyNodes
			}
		}
		if now.Status.ClustersOmitted == 0 && (nodes != now.Status.NodeCount || ready != now.Status.ReadyNodes) {
			problems = append(problems, fmt.Sprintf("nodes %d of %d, the entries add up to %d of %d", now.Status.ReadyNodes, now.Status.NodeCount, ready, nodes))
		}
		problems = append(problems, judgeConditions(old.Status.Conditions, now.Status.Conditions, now.Status.ObservedGeneration)...)
		problems = append(problems, judgePace(old, now, sameRollUp(old.Status, now.Status))...)
	case *flotillav1.MemberCluster:
		old, _ := before.(*flotillav1.MemberCluster)
		if old != nil {
			problems = append(problems, judgeConditions(old.Status.Conditions, now.Status.Conditions, now.Status.ObservedGeneration)...)
		}
	}
	return problems
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

// sameRollUp says that two statuses differ in nothing but what placement writes.
func sameRollUp[T flotillav1.RedisStatus | flotillav1.NodePoolStatus](before, now T) bool {
	for _, status := range []any{&before, &now} {
		switch status := status.(type) {
		case *flotillav1.RedisStatus:
			status.PlacedIn = nil
		case *flotillav1.NodePoolStatus:
			status.PlacedIn = nil
		}
	}
	return equality.Semantic.DeepEqual(before, now)
}

// judgePace expects a second between two writes of roll-up. Whole seconds are compared, because that is what is stored.
func judgePace(before, now client.Object, same bool) []string {
	at := func(object client.Object) (last time.Time) {
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == "flotilla-rollup" && entry.Subresource == "status" && entry.Time != nil {
				last = entry.Time.Time
			}
		}
		return last
	}
	if !same && !at(before).IsZero() && at(before).Equal(at(now)) {
		return []string{fmt.Sprintf("it was written twice in the second of %s", at(now).UTC().Format(time.TimeOnly))}
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
		"a number":               {later(func(r *flotillav1.Redis) { r.Status.ReadyReplicas, r.Status.Clusters[0].ReadyReplicas = 3, 3 }), 0},
		"another record":         {later(func(r *flotillav1.Redis) { r.Status.PlacedIn, r.ManagedFields = []string{"eu-1"}, right.ManagedFields }), 0},
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
