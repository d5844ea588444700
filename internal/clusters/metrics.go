// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Why an event was not told.
const (
	dropSuppressed   = "Suppressed"
	dropUnregistered = "Unregistered"
	dropUnknownKind  = "UnknownKind"
)

var (
	reconcileSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "flotilla_reconcile_seconds",
		Help: "How long a pass of a controller over an object of a cluster took; cluster is empty for the hub.",
		// Few buckets, because there is one histogram for each controller and member.
		Buckets: []float64{0.01, 0.05, 0.25, 1, 5, 15, 60},
	}, []string{"controller", "cluster"})

	eventsDropped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flotilla_events_dropped_total",
		Help: "Events about objects of a cluster that were not recorded, by reason.",
	}, []string{"cluster", "reason"})

	credentialExpiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "flotilla_cluster_credential_expiry_timestamp_seconds",
		Help: "When the credential in use with a cluster ends; no series when it does not say.",
	}, []string{"cluster"})

	watchesReopened = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flotilla_watches_reopened_total",
		Help: "Watches in a cluster that were opened again because nothing was heard of them.",
	}, []string{"cluster"})

	queues = &queueCollector{
		depth: prometheus.NewDesc("flotilla_queue_depth",
			"Requests of a cluster that wait for a worker of a controller; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
		oldest: prometheus.NewDesc("flotilla_queue_oldest_seconds",
			"For how long the oldest request of a cluster has been waiting for a worker of a controller; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
		queues: map[string]measuredQueue{},
	}

	// observing is held while a series of a member is written, so that forgetMetrics has the last word.
	observing sync.Mutex
)

func init() {
	metrics.Registry.MustRegister(reconcileSeconds, eventsDropped, credentialExpiry, watchesReopened, queues)
}

// observeReconcile records the duration of a pass, unless the member has been offboarded meanwhile.
func observeReconcile(members Directory, controller string, clusterName multicluster.ClusterName, took time.Duration) {
	observing.Lock()
	defer observing.Unlock()
	if clusterName != "" {
		if _, registered := members.Snapshot(clusterName); !registered {
			return
		}
	}
	reconcileSeconds.WithLabelValues(controller, string(clusterName)).Observe(took.Seconds())
}

// countDroppedEvent counts an event of a registered member that is not told.
func countDroppedEvent(members Directory, clusterName multicluster.ClusterName, reason string) {
	observing.Lock()
	defer observing.Unlock()
	label := string(clusterName)
	if _, registered := members.Snapshot(clusterName); !registered {
		label = ""
	}
	eventsDropped.WithLabelValues(label, reason).Inc()
}

// observeExpiry records when the credential of a registered member ends; zero when that is not known.
func observeExpiry(members Directory, clusterName multicluster.ClusterName, expires time.Time) {
	observing.Lock()
	defer observing.Unlock()
	if _, registered := members.Snapshot(clusterName); expires.IsZero() || !registered {
		credentialExpiry.DeleteLabelValues(string(clusterName))
		return
	}
	credentialExpiry.WithLabelValues(string(clusterName)).Set(float64(expires.Unix()))
}

// countReopened counts watches of a registered member that are opened again.
func countReopened(members Directory, clusterName multicluster.ClusterName, watches int) {
	observing.Lock()
	defer observing.Unlock()
	if _, registered := members.Snapshot(clusterName); registered && watches > 0 {
		watchesReopened.WithLabelValues(string(clusterName)).Add(float64(watches))
	}
}

// forgetMetrics removes the series of a member. Call it when the Directory does not know the member any more.
func forgetMetrics(clusterName string) {
	observing.Lock()
	defer observing.Unlock()
	series := prometheus.Labels{"cluster": clusterName}
	reconcileSeconds.DeletePartialMatch(series)
	eventsDropped.DeletePartialMatch(series)
	credentialExpiry.DeletePartialMatch(series)
	watchesReopened.DeletePartialMatch(series)
}

// queueCollector reads the queues when it is asked, so that nothing has to be counted while they work and the series of
// a member end with it.
type queueCollector struct {
	depth, oldest *prometheus.Desc

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
		}
	}
}
