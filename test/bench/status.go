// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// statusInterval is the time between two changes of statuses.
const statusInterval = 100 * time.Millisecond

// trip is a change in one cluster whose effect is observed in others.
type trip struct {
	object string
	// start makes the change. shown reports whether a new version of the object in any cluster shows the effect. The trips of
	// one object end in order.
	start func(context.Context) error
	shown func(change) bool
}

// onHub returns a trip.shown that looks at versions of the hub object only.
func (b *bench) onHub(shown func(*flotillav1.NodePool) bool) func(change) bool {
	return func(c change) bool { return c.cluster == b.fleet.hub.name && c.pool != nil && shown(c.pool) }
}

// travel starts a trip at each interval and returns the duration of each in milliseconds. A trip whose effect is not
// observed counts as having taken all of patience.
func (b *bench) travel(ctx context.Context, trips []trip, interval, patience time.Duration) (latencies []float64, problem error) {
	waiting := map[string][]int{}
	var keys []string
	for i, trip := range trips {
		waiting[trip.object] = append(waiting[trip.object], i)
		keys = append(keys, strconv.Itoa(i))
	}
	shown := b.observer.expect(keys, func(c change) []string {
		var done []string
		for rest := waiting[c.name]; len(rest) > 0 && trips[rest[0]].shown(c); {
			done = append(done, strconv.Itoa(rest[0]))
			rest = rest[1:]
			waiting[c.name] = rest
		}
		return done
	})
	started := make([]time.Time, len(trips))
	errs := make([]error, len(trips))
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var running sync.WaitGroup
	for i, trip := range trips {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		started[i] = time.Now()
		running.Go(func() { errs[i] = trip.start(ctx) })
	}
	running.Wait()
	at, problem := shown.wait(ctx, patience)
	for i := range trips {
		latency := patience
		if seen, found := at[strconv.Itoa(i)]; found {
			latency = seen.Sub(started[i])
		}
		latencies = append(latencies, float64(latency.Microseconds())/1000)
	}
	return latencies, errors.Join(append(errs, problem)...)
}

// status measures the time from a change in a member until the status of the hub object shows it.
func (t *turn) status(ctx context.Context) error {
	if t.system.name == flotilla {
		if err := t.joins(ctx); err != nil {
			return err
		}
	}
	if t.counts() {
		if err := t.conditions(ctx); err != nil {
			return err
		}
	}
	return t.roundTrip(ctx, phaseNumber, t.numberTrips(t.changes, t.names(), t.fleet.members))
}

func (t *turn) roundTrip(ctx context.Context, name string, trips []trip) error {
	return t.measure(ctx, name, units{objects: t.objects, changes: len(trips)}, func(ctx context.Context) (values, error) {
		latencies, problem := t.travel(ctx, trips, statusInterval, time.Minute)
		t.settle(ctx)
		return latencyValues(latencies), problem
	})
}

func latencyValues(latencies []float64) values {
	return values{"p50 ms": quantile(latencies, 0.5), "p99 ms": quantile(latencies, 0.99), "max ms": slices.Max(latencies)}
}

// numberTrips returns trips that increment a number in the status of a copy.
func (b *bench) numberTrips(count int, names []string, members []*Cluster) []trip {
	var trips []trip
	sums, numbers := map[string]int32{}, map[string]int32{}
	for i := range count {
		name, member := names[i%len(names)], members[(i+i/len(names))%len(members)]
		key := member.name + "/" + name
		if _, begun := sums[name]; !begun {
			sums[name] = b.nodes(b.fleet.hub, name)
		}
		if _, begun := numbers[key]; !begun {
			numbers[key] = b.nodes(member, name)
		}
		sums[name]++
		numbers[key]++
		sum, number := sums[name], numbers[key]
		trips = append(trips, trip{
			object: name,
			start: func(ctx context.Context) error {
				return patchPoolStatus(ctx, member, name, map[string]any{"nodeCount": number})
			},
			shown: b.onHub(func(pool *flotillav1.NodePool) bool { return pool.Status.NodeCount >= sum }),
		})
	}
	return trips
}

// nodes returns the number of nodes in the status of an object, as last observed.
func (b *bench) nodes(c *Cluster, name string) int32 {
	if pool := b.observer.get(c.name, name); pool != nil {
		return pool.Status.NodeCount
	}
	return 0
}

// conditions makes all copies ready, and then flips the condition Ready of one after another.
func (t *turn) conditions(ctx context.Context) error {
	names := t.names()
	err := each(ctx, len(names)*len(t.fleet.members), func(ctx context.Context, i int) error {
		return t.setReady(ctx, t.fleet.members[i%len(t.fleet.members)], names[i/len(t.fleet.members)], metav1.ConditionTrue)
	})
	if err != nil {
		return fmt.Errorf("making the copies ready: %w", err)
	}
	t.settle(ctx)
	var trips []trip
	all := int32(len(t.fleet.members))
	for i := range t.changes {
		name, member := names[i%len(names)], t.fleet.members[i%len(names)%len(t.fleet.members)]
		to, ready := metav1.ConditionFalse, all-1
		if i/len(names)%2 == 1 {
			to, ready = metav1.ConditionTrue, all
		}
		trips = append(trips, trip{
			object: name,
			start:  func(ctx context.Context) error { return t.setReady(ctx, member, name, to) },
			shown: t.onHub(func(pool *flotillav1.NodePool) bool {
				return pool.Status.ClusterCounts != nil && pool.Status.ClusterCounts.Ready == ready
			}),
		})
	}
	return t.roundTrip(ctx, phaseCondition, trips)
}

// setReady writes the condition Ready of a copy for its current generation.
func (t *turn) setReady(ctx context.Context, member *Cluster, name string, to metav1.ConditionStatus) error {
	pool := t.observer.get(member.name, name)
	if pool == nil {
		return fmt.Errorf("no %q in %q", name, member.name)
	}
	conditions := slices.Clone(pool.Status.Conditions)
	ready := metav1.Condition{Type: flotillav1.ConditionReady, Status: to, Reason: flotillav1.ReasonAllNodesUpdated, ObservedGeneration: pool.Generation}
	if to != metav1.ConditionTrue {
		ready.Reason = flotillav1.ReasonNodesPending
	}
	if !apimeta.SetStatusCondition(&conditions, ready) {
		return nil
	}
	return patchPoolStatus(ctx, member, name, map[string]any{"observedGeneration": pool.Generation, "conditions": conditions})
}

// joins labels nodes so that they join the pools of the members. Unlike a change of status, this has to be reconciled in the
// member first.
func (t *turn) joins(ctx context.Context) error {
	names, nodes := t.names(), make([]*corev1.Node, t.changes)
	for i := range nodes {
		nodes[i] = node(fmt.Sprintf("joining-%04d", i))
	}
	memberOf := func(i int) *Cluster { return t.fleet.members[i%len(t.fleet.members)] }
	err := each(ctx, len(nodes), func(ctx context.Context, i int) error {
		return makeNode(ctx, memberOf(i), nodes[i])
	})
	if err != nil {
		return err
	}
	defer func() {
		_ = each(ctx, len(nodes), func(ctx context.Context, i int) error { return memberOf(i).client.Delete(ctx, nodes[i]) })
		t.settle(ctx)
	}()
	t.settle(ctx)
	var trips []trip
	joined := map[string]int32{}
	for i := range nodes {
		name := names[i%len(names)]
		joined[name]++
		sum := joined[name]
		trips = append(trips, trip{
			object: name,
			start:  func(ctx context.Context) error { return join(ctx, memberOf(i), nodes[i].Name, name) },
			shown:  t.onHub(func(pool *flotillav1.NodePool) bool { return pool.Status.NodeCount >= sum }),
		})
	}
	return t.roundTrip(ctx, phaseJoin, trips)
}

// node returns a node that already has what controllers would write. It has no heartbeat, which is tolerated for a minute.
func node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"node.alpha.kubernetes.io/ttl": "0"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.200.0.0/24", PodCIDRs: []string{"10.200.0.0/24"}},
	}
}

func makeNode(ctx context.Context, member *Cluster, node *corev1.Node) error {
	if err := client.IgnoreAlreadyExists(member.client.Create(ctx, node)); err != nil {
		return fmt.Errorf("creating node %q: %w", node.Name, err)
	}
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
	status := map[string]any{"status": corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
	if err := member.client.Status().Patch(ctx, node, mergePatch(status)); err != nil {
		return fmt.Errorf("making node %q ready: %w", node.Name, err)
	}
	return nil
}

// join puts the label of a pool on a node.
func join(ctx context.Context, member *Cluster, name, pool string) error {
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{poolLabel: pool}}}
	return member.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, mergePatch(labels))
}
