// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// queueCollector reads the queues when it is asked, so that nothing has to be counted while they work and the series of
// a member end with it.
type queueCollector struct {
	depth, oldest, inFlight *prometheus.Desc

	mu sync.Mutex
	// queues by controller name; under mu.
	queues map[string]measuredQueue
}

// measuredQueue is a queue with the members that have a series in it also when nothing of them waits.
type measuredQueue struct {
	lanes   *lanes
	members Directory
}

func (c *queueCollector) add(controller string, lanes *lanes, members Directory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[controller] = measuredQueue{lanes: lanes, members: members}
}

// Describe implements prometheus.Collector.
func (c *queueCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.depth
	descs <- c.oldest
	descs <- c.inFlight
}

// Collect implements prometheus.Collector.
func (c *queueCollector) Collect(series chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for controller, queue := range c.queues {
		depths := queue.lanes.depths()
		for _, member := range queue.members.Snapshots() {
			if _, waits := depths[member.Name]; !waits {
				depths[member.Name] = laneDepth{}
			}
		}
		for clusterName, depth := range depths {
			series <- prometheus.MustNewConstMetric(c.depth, prometheus.GaugeValue, float64(depth.waiting), controller, string(clusterName))
			series <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, depth.oldest.Seconds(), controller, string(clusterName))
			series <- prometheus.MustNewConstMetric(c.inFlight, prometheus.GaugeValue, float64(depth.inFlight), controller, string(clusterName))
		}
	}
}

// inventoryCollector reads the members of the pools that run when it is asked.
type inventoryCollector struct {
	state, objects *prometheus.Desc

	mu sync.Mutex
	// pools that run; under mu.
	pools map[*Pool]struct{}
}

// follow has the members of a pool shown until the function that it returns is called.
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
			for _, state := range states {
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
