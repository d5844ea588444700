// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// queueCollector reads the queues when it is scraped, so that the queues need not count and the series of a member end
// with it.
type queueCollector struct {
	depth, oldest, inFlight *prometheus.Desc

	mu sync.Mutex
	// queues by controller name. Guarded by mu.
	queues map[string]measuredQueue
}

// measuredQueue is a queue and its members, which have series even if no request waits.
type measuredQueue struct {
	lanes   *lanes
	members clusters.Directory
}

func (c *queueCollector) add(controller string, lanes *lanes, members clusters.Directory) {
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

// queues collects the queues of all controllers.
var queues = &queueCollector{
	depth: prometheus.NewDesc("flotilla_queue_depth",
		"Requests of a cluster that wait for a worker of a controller; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
	oldest: prometheus.NewDesc("flotilla_queue_oldest_seconds",
		"For how long the oldest request of a cluster has been waiting for a worker of a controller; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
	inFlight: prometheus.NewDesc("flotilla_queue_in_flight",
		"Requests of a cluster that workers of a controller are passing; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
	queues: map[string]measuredQueue{},
}

func init() { ctrlmetrics.Registry.MustRegister(queues) }
