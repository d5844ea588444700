// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// inventoryCollector collects metrics of the members of all running pools.
type inventoryCollector struct {
	state, objects *prometheus.Desc

	mu sync.Mutex
	// pools are the running pools; guarded by mu.
	pools map[*Pool]struct{}
}

// follow includes the members of a pool until stop is called.
func (c *inventoryCollector) follow(p *Pool) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[p] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pools, p)
	}
}

// Describe implements prometheus.Collector.
func (c *inventoryCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.state
	descs <- c.objects
}

// Collect implements prometheus.Collector.
func (c *inventoryCollector) Collect(series chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.pools {
		for _, m := range p.all() {
			now := m.snapshot().State
			for _, state := range clusters.States {
				value := 0.0
				if state == now {
					value = 1
				}
				series <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, value, string(m.name), string(state))
			}
			if objects, engaged := m.cachedObjects(); engaged {
				series <- prometheus.MustNewConstMetric(c.objects, prometheus.GaugeValue, float64(objects), string(m.name))
			}
		}
	}
}

// inventories collects from all running pools.
var inventories = &inventoryCollector{
	state: prometheus.NewDesc("flotilla_cluster_state",
		"1 for the state that a cluster is in, 0 for the others.", []string{"cluster", "state"}, nil),
	objects: prometheus.NewDesc("flotilla_cached_objects",
		"Objects in the caches of an engaged cluster.", []string{"cluster"}, nil),
	pools: map[*Pool]struct{}{},
}

func init() { ctrlmetrics.Registry.MustRegister(inventories) }
