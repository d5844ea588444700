// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/redisspec"
)

// leaders are the Redises of mode Sentinel. Only they have series of their own: a failover is worth an alert, whose first
// question is where.
var leaders = &leaderCollector{
	failovers: prometheus.NewDesc("flotilla_redis_failovers_total",
		"Changes of the primary of a Redis in mode Sentinel, planned ones included.", []string{"cluster", "namespace", "name"}, nil),
	primary: prometheus.NewDesc("flotilla_redis_primary_info",
		"The Pod that is the primary of a Redis in mode Sentinel; absent while it is not known.", []string{"cluster", "namespace", "name", "pod"}, nil),
	sentinels: prometheus.NewDesc("flotilla_redis_sentinels",
		"Sentinels of a Redis that run. Two of three are needed.", []string{"cluster", "namespace", "name"}, nil),
	seen: map[clusters.Request]leading{},
}

func init() { ctrlmetrics.Registry.MustRegister(leaders) }

// leading is what a pass has reported about a Redis.
type leading struct {
	primary   string
	failovers int32
	sentinels int
}

// leaderCollector stores what passes have reported, so that a scrape does not have to list anything.
type leaderCollector struct {
	failovers, primary, sentinels *prometheus.Desc

	mu sync.Mutex
	// seen is guarded by mu.
	seen map[clusters.Request]leading
}

// note records the status of a Redis, or forgets it if it has no sentinels, or none yet.
func (c *leaderCollector) note(req clusters.Request, s *state, status flotillav1.RedisStatus) {
	if !redisspec.IsSentinel(&s.spec) || *s.spec.Replicas == 0 || status.PrimaryEpoch == nil {
		c.forget(req)
		return
	}
	running := filter(s.pods, func(p pod) bool { return p.votes && !p.deleting && p.ordinal < voters })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[req] = leading{primary: status.Primary, failovers: status.Failovers, sentinels: len(running)}
}

func (c *leaderCollector) forget(req clusters.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, req)
}

// forgetCluster forgets the Redises of a cluster that cannot be observed.
func (c *leaderCollector) forgetCluster(name multicluster.ClusterName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.seen, func(req clusters.Request, _ leading) bool { return req.ClusterName == name })
}

// Describe implements prometheus.Collector.
func (c *leaderCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.failovers
	descs <- c.primary
	descs <- c.sentinels
}

// Collect implements prometheus.Collector.
func (c *leaderCollector) Collect(series chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for req, found := range c.seen {
		labels := []string{string(req.ClusterName), req.Namespace, req.Name}
		series <- prometheus.MustNewConstMetric(c.failovers, prometheus.CounterValue, float64(found.failovers), labels...)
		series <- prometheus.MustNewConstMetric(c.sentinels, prometheus.GaugeValue, float64(found.sentinels), labels...)
		if found.primary != "" {
			series <- prometheus.MustNewConstMetric(c.primary, prometheus.GaugeValue, 1, append(labels, found.primary)...)
		}
	}
}
