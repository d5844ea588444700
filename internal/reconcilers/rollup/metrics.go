// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/conditions"
)

// stuckAfter is how long an object counts as progressing while neither its generation nor its cluster counts change.
const stuckAfter = 10 * time.Minute

// States of the objects of a member, as counted in its MemberCluster.
const (
	memberReady    = "Ready"
	memberNotReady = "NotReady"
	memberUnknown  = "Unknown"
)

// tallies are the tallies of the leading managers.
var tallies = &tallyCollector{
	objects: prometheus.NewDesc("flotilla_objects",
		"Hub objects by state.", []string{"kind", "state"}, nil),
	clusterObjects: prometheus.NewDesc("flotilla_cluster_objects",
		"Objects in a cluster by state, as last counted; state is Unknown while the cluster cannot be observed.", []string{"cluster", "kind", "state"}, nil),
	tallies: map[*tally]struct{}{},
}

func init() { ctrlmetrics.Registry.MustRegister(tallies) }

// tally stores the states of the hub objects and of the objects of members. Passes record their results in it, so that
// a scrape does not have to list anything.
type tally struct {
	members clusters.Directory
	clock   clock.PassiveClock

	mu sync.Mutex
	// objects and summaries by name of the member; guarded by mu.
	objects   map[fleet.ObjectKey]standing
	summaries map[string]flotillav1.MemberClusterSummary
}

// standing is the state of one hub object.
type standing struct {
	state      conditions.State
	generation int64
	counts     flotillav1.ClusterCounts
	// since is when the other fields last changed.
	since time.Time
}

func newTally(members clusters.Directory, clk clock.PassiveClock) *tally {
	return &tally{
		members: members, clock: clk, objects: map[fleet.ObjectKey]standing{}, summaries: map[string]flotillav1.MemberClusterSummary{},
	}
}

// note records the state of a hub object. All methods of a nil tally do nothing.
func (t *tally) note(key fleet.ObjectKey, hubObject fleet.Object) {
	if t == nil {
		return
	}
	now := standing{state: conditions.StateOf(*hubObject.GetConditions()), generation: hubObject.GetGeneration()}
	if counts := hubObject.GetFleetStatus().ClusterCounts; counts != nil {
		now.counts = *counts
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before, known := t.objects[key]
	if now.since = before.since; !known || now != before {
		now.since = t.clock.Now()
	}
	t.objects[key] = now
}

// forget deletes a hub object.
func (t *tally) forget(key fleet.ObjectKey) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.objects, key)
}

// noteMember records the counts of a member; nil changes nothing.
func (t *tally) noteMember(clusterName string, summary *flotillav1.MemberClusterSummary) {
	if t == nil || summary == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.summaries[clusterName] = *summary
}

// forgetMember deletes a member.
func (t *tally) forgetMember(clusterName string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.summaries, clusterName)
}

// publish exports the tally until ctx ends. The manager runs it on the leader only.
func (t *tally) publish(ctx context.Context) error {
	tallies.add(t)
	defer tallies.remove(t)
	<-ctx.Done()
	return nil
}

// objectCounts returns the number of hub objects by state. An object that makes no progress for long counts as
// degraded.
func (t *tally) objectCounts() map[string]map[conditions.State]int {
	counts := map[string]map[conditions.State]int{}
	for _, kind := range Kinds() {
		counts[kind.Name] = map[conditions.State]int{}
	}
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, found := range t.objects {
		state := found.state
		if state == conditions.StateProgressing && now.Sub(found.since) >= stuckAfter {
			state = conditions.StateDegraded
		}
		counts[key.Kind][state]++
	}
	return counts
}

// memberCounts returns the number of objects of each registered member by kind and state.
func (t *tally) memberCounts() map[string]map[string]map[string]int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[string]map[string]map[string]int32{}
	for name, summary := range t.summaries {
		snapshot, registered := t.members.Snapshot(clusterName(name))
		if !registered {
			continue
		}
		known := func(kind string) bool { return snapshot.Visible() && snapshot.Off[kind] == "" }
		counts[name] = map[string]map[string]int32{
			fleet.Redis.Name:    byState(summary.Redises, known(fleet.Redis.Name)),
			fleet.NodePool.Name: byState(summary.NodePools, known(fleet.NodePool.Name)),
			"Node":              byState(summary.Nodes, known(fleet.NodePool.Name)),
		}
	}
	return counts
}

func byState(counts flotillav1.ObjectCounts, known bool) map[string]int32 {
	if !known {
		return map[string]int32{memberReady: 0, memberNotReady: 0, memberUnknown: counts.Total}
	}
	return map[string]int32{memberReady: counts.Ready, memberNotReady: counts.Total - counts.Ready, memberUnknown: 0}
}

// tallyCollector reads the published tallies when it is collected.
type tallyCollector struct {
	objects, clusterObjects *prometheus.Desc

	mu sync.Mutex
	// tallies that are published; guarded by mu.
	tallies map[*tally]struct{}
}

func (c *tallyCollector) add(t *tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tallies[t] = struct{}{}
}

func (c *tallyCollector) remove(t *tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tallies, t)
}

// Describe implements prometheus.Collector.
func (c *tallyCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.objects
	descs <- c.clusterObjects
}

// Collect implements prometheus.Collector.
func (c *tallyCollector) Collect(series chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.tallies {
		for kind, counts := range t.objectCounts() {
			for _, state := range conditions.States() {
				series <- prometheus.MustNewConstMetric(c.objects, prometheus.GaugeValue, float64(counts[state]), kind, string(state))
			}
		}
		for name, kinds := range t.memberCounts() {
			for kind, counts := range kinds {
				for state, count := range counts {
					series <- prometheus.MustNewConstMetric(c.clusterObjects, prometheus.GaugeValue, float64(count), name, kind, state)
				}
			}
		}
	}
}
