// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
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

// How a rotation ended.
const (
	rotationSucceeded = "Succeeded"
	rotationFailed    = "Failed"
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

	probeSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "flotilla_probe_seconds",
		Help:    "How long a probe of an engaged cluster took, failed ones included.",
		Buckets: []float64{0.01, 0.05, 0.25, 1, 5},
	}, []string{"cluster"})

	rotations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flotilla_credential_rotations_total",
		Help: "New credentials of a cluster that were tried while an earlier one was in use; result is Succeeded or Failed.",
	}, []string{"cluster", "result"})

	relists = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "flotilla_relists_total",
		Help: "Lists that the caches of a cluster made after they had been filled.",
	}, []string{"cluster"})

	queues = &queueCollector{
		depth: prometheus.NewDesc("flotilla_queue_depth",
			"Requests of a cluster that wait for a worker of a controller; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
		oldest: prometheus.NewDesc("flotilla_queue_oldest_seconds",
			"For how long the oldest request of a cluster has been waiting for a worker of a controller; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
		inFlight: prometheus.NewDesc("flotilla_queue_in_flight",
			"Requests of a cluster that workers of a controller are passing; cluster is empty for the hub.", []string{"controller", "cluster"}, nil),
		queues: map[string]measuredQueue{},
	}

	inventories = &inventoryCollector{
		state: prometheus.NewDesc("flotilla_cluster_state",
			"1 for the state that a cluster is in, 0 for the others.", []string{"cluster", "state"}, nil),
		objects: prometheus.NewDesc("flotilla_cached_objects",
			"Objects in the caches of an engaged cluster.", []string{"cluster"}, nil),
		pools: map[*Pool]struct{}{},
	}

	collectors = []prometheus.Collector{
		reconcileSeconds, eventsDropped, credentialExpiry, watchesReopened, probeSeconds, rotations, relists, queues, inventories,
	}

	// restRequests counts the requests of all clients by host, which is the name for a member.
	restRequests = registeredRestRequests()

	// observing is held while a series of a member is written, so that forgetMetrics has the last word.
	observing sync.Mutex
)

func init() {
	metrics.Registry.MustRegister(collectors...)
}

// registeredRestRequests returns the collector that controller-runtime has registered and does not export.
func registeredRestRequests() *prometheus.CounterVec {
	same := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total", Help: "Number of HTTP requests, partitioned by status code, method, and host.",
	}, []string{"code", "method", "host"})
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](metrics.Registry.Register(same)); ok {
		if existing, ok := registered.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing
		}
	}
	return same
}

// beginMetrics starts the counters of a member at 0. Prometheus sees no increase in a counter that comes into being with
// the first thing that it counts, and an alert about that would not fire.
func beginMetrics(members Directory, clusterName multicluster.ClusterName) {
	name := string(clusterName)
	whileRegistered(members, clusterName, func() {
		eventsDropped.WithLabelValues(name, dropSuppressed)
		watchesReopened.WithLabelValues(name)
		relists.WithLabelValues(name)
		for _, result := range []string{rotationSucceeded, rotationFailed} {
			rotations.WithLabelValues(name, result)
		}
	})
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
	if watches > 0 {
		whileRegistered(members, clusterName, func() { watchesReopened.WithLabelValues(string(clusterName)).Add(float64(watches)) })
	}
}

// observeProbe records the duration of a probe.
func observeProbe(members Directory, clusterName multicluster.ClusterName, took time.Duration) {
	whileRegistered(members, clusterName, func() { probeSeconds.WithLabelValues(string(clusterName)).Observe(took.Seconds()) })
}

// countRotation counts a new credential that was tried while an earlier one was in use.
func countRotation(members Directory, clusterName multicluster.ClusterName, result string) {
	whileRegistered(members, clusterName, func() { rotations.WithLabelValues(string(clusterName), result).Inc() })
}

// countRelist counts a list of a cache that had been filled before.
func countRelist(members Directory, clusterName multicluster.ClusterName) {
	whileRegistered(members, clusterName, func() { relists.WithLabelValues(string(clusterName)).Inc() })
}

// whileRegistered writes a series of a member unless the member has been offboarded.
func whileRegistered(members Directory, clusterName multicluster.ClusterName, write func()) {
	observing.Lock()
	defer observing.Unlock()
	if _, registered := members.Snapshot(clusterName); registered {
		write()
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
	probeSeconds.DeletePartialMatch(series)
	rotations.DeletePartialMatch(series)
	relists.DeletePartialMatch(series)
	restRequests.DeletePartialMatch(prometheus.Labels{"host": clusterName})
}
