// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// Reasons why an event was dropped.
const (
	DropSuppressed   = "Suppressed"
	DropUnregistered = "Unregistered"
	DropUnknownKind  = "UnknownKind"
)

// Results of a rotation.
const (
	RotationSucceeded = "Succeeded"
	RotationFailed    = "Failed"
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

	collectors = []prometheus.Collector{
		reconcileSeconds, eventsDropped, credentialExpiry, watchesReopened, probeSeconds, rotations, relists,
	}

	// restRequests counts the requests of all clients by host, which is the cluster name for members.
	restRequests = registeredRestRequests()

	// observing is held while a series of a member is written, so that writes cannot follow Forget.
	observing sync.Mutex
)

func init() {
	ctrlmetrics.Registry.MustRegister(collectors...)
}

// registeredRestRequests returns the collector that controller-runtime registers but does not export.
func registeredRestRequests() *prometheus.CounterVec {
	same := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total", Help: "Number of HTTP requests, partitioned by status code, method, and host.",
	}, []string{"code", "method", "host"})
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](ctrlmetrics.Registry.Register(same)); ok {
		if existing, ok := registered.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing
		}
	}
	return same
}

// Begin initializes the counters of a member to 0. Prometheus does not see an increase in a counter that is created with
// its first count, and alerts on it would not fire.
func Begin(members clusters.Directory, clusterName multicluster.ClusterName) {
	name := string(clusterName)
	whileRegistered(members, clusterName, func() {
		eventsDropped.WithLabelValues(name, DropSuppressed)
		watchesReopened.WithLabelValues(name)
		relists.WithLabelValues(name)
		for _, result := range []string{RotationSucceeded, RotationFailed} {
			rotations.WithLabelValues(name, result)
		}
	})
}

// ObserveReconcile records the duration of a pass, unless the member has been offboarded.
func ObserveReconcile(members clusters.Directory, controller string, clusterName multicluster.ClusterName, took time.Duration) {
	observing.Lock()
	defer observing.Unlock()
	if clusterName != "" {
		if _, registered := members.Snapshot(clusterName); !registered {
			return
		}
	}
	reconcileSeconds.WithLabelValues(controller, string(clusterName)).Observe(took.Seconds())
}

// CountDroppedEvent counts a dropped event. The cluster is empty for members that are not registered.
func CountDroppedEvent(members clusters.Directory, clusterName multicluster.ClusterName, reason string) {
	observing.Lock()
	defer observing.Unlock()
	label := string(clusterName)
	if _, registered := members.Snapshot(clusterName); !registered {
		label = ""
	}
	eventsDropped.WithLabelValues(label, reason).Inc()
}

// ObserveExpiry records when the credential of a registered member expires. A zero time removes the series.
func ObserveExpiry(members clusters.Directory, clusterName multicluster.ClusterName, expires time.Time) {
	observing.Lock()
	defer observing.Unlock()
	if _, registered := members.Snapshot(clusterName); expires.IsZero() || !registered {
		credentialExpiry.DeleteLabelValues(string(clusterName))
		return
	}
	credentialExpiry.WithLabelValues(string(clusterName)).Set(float64(expires.Unix()))
}

// CountReopened counts reopened watches of a registered member.
func CountReopened(members clusters.Directory, clusterName multicluster.ClusterName, watches int) {
	if watches > 0 {
		whileRegistered(members, clusterName, func() { watchesReopened.WithLabelValues(string(clusterName)).Add(float64(watches)) })
	}
}

// ObserveProbe records the duration of a probe.
func ObserveProbe(members clusters.Directory, clusterName multicluster.ClusterName, took time.Duration) {
	whileRegistered(members, clusterName, func() { probeSeconds.WithLabelValues(string(clusterName)).Observe(took.Seconds()) })
}

// CountRotation counts a new credential that was tried while an earlier one was in use.
func CountRotation(members clusters.Directory, clusterName multicluster.ClusterName, result string) {
	whileRegistered(members, clusterName, func() { rotations.WithLabelValues(string(clusterName), result).Inc() })
}

// CountRelist counts a list of a cache that was already filled.
func CountRelist(members clusters.Directory, clusterName multicluster.ClusterName) {
	whileRegistered(members, clusterName, func() { relists.WithLabelValues(string(clusterName)).Inc() })
}

// whileRegistered calls write unless the member has been offboarded.
func whileRegistered(members clusters.Directory, clusterName multicluster.ClusterName, write func()) {
	observing.Lock()
	defer observing.Unlock()
	if _, registered := members.Snapshot(clusterName); registered {
		write()
	}
}

// Forget removes the series of a member. It must be called after the Directory has dropped the member.
func Forget(clusterName string) {
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
