// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/placement"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/rollup"
)

// The leader keeps its Lease through a hub outage of 45 seconds; after that the process exits. The deadline begins with
// the first attempt that fails, and the last attempt before it must come when such an outage is over: with a retry every
// 10 seconds until 45, the last one would come after 40. No other process takes the Lease before this one has exited,
// because the deadline and the pause before the first attempt together are shorter than the Lease lasts.
const (
	leaseDuration = 60 * time.Second
	renewDeadline = 50 * time.Second
	retryPeriod   = 4 * time.Second
	// leaseTimeout is how long one request may take.
	leaseTimeout = 10 * time.Second
)

// A connection to the hub on which nothing is heard for the first is pinged, and dropped when the answer takes longer than
// the second. With the defaults, 30 and 15 seconds, a connection that has died would be found out as late as renewing the
// Lease ends, and for as long the hub's changes would not be seen.
const (
	hubReadIdleTimeout = 15 * time.Second
	hubPingTimeout     = 10 * time.Second
	hubDialTimeout     = 5 * time.Second
)

// hubBurst is how many seconds' worth of writes may go to the hub at once under the limit of hub.qps.
const hubBurst = 5

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	return scheme
}

// newManager wires the pool and the reconcilers to the hub.
func newManager(cfg *Config) (mcmanager.Manager, error) {
	hubConfig, err := hubRESTConfig(cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	scheme := newScheme()
	policy, problems := cfg.Registration.policy()
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	pool, err := clusters.NewPool(clusters.Config{
		HubID:          cfg.Hub.ID,
		Namespace:      cfg.LeaderElection.Namespace,
		Sources:        sources(cfg.Registration.Sources),
		Policy:         policy,
		Scheme:         scheme,
		EnforceTenancy: cfg.Tenancy == tenancyEnforced,
		InstallCRDs:    cfg.Members.CRDs == crdsInstall,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the pool: %w", err)
	}
	options, err := managerOptions(cfg, hubConfig, scheme)
	if err != nil {
		return nil, err
	}
	mgr, err := mcmanager.New(hubConfig, pool, options)
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	if err := setup(mgr, pool, cfg); err != nil {
		return nil, err
	}
	return mgr, nil
}

func setup(mgr mcmanager.Manager, pool *clusters.Pool, cfg *Config) error {
	hub := mgr.GetLocalManager()
	if err := pool.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the pool: %w", err)
	}
	clk := clock.RealClock{}
	recorder := clusters.NewRecorder(clusters.RecorderOptions{
		HubID:     cfg.Hub.ID,
		Scheme:    hub.GetScheme(),
		Members:   pool,
		Hub:       hub,
		HubReader: hub.GetClient(),
		Clock:     clk,
	})
	table := fleet.NewTable()
	if err := redis.Setup(mgr, pool, recorder, clk, cfg.Workers); err != nil {
		return fmt.Errorf("setting up redis: %w", err)
	}
	if err := nodepool.Setup(mgr, pool, recorder, clk, cfg.Workers); err != nil {
		return fmt.Errorf("setting up nodepool: %w", err)
	}
	removals := fleet.NewRemovals(cfg.Removals.Budget, clk)
	removals.Share = cfg.Removals.Share
	options := placement.Options{
		HubID:             cfg.Hub.ID,
		AllowedNamespaces: cfg.Members.Namespaces,
		CreateNamespaces:  cfg.Members.CreateNamespaces,
		CopyMetadata:      cfg.Members.CopyMetadata,
		Removals:          removals,
	}
	if err := placement.Setup(mgr, pool, table, options, cfg.Workers); err != nil {
		return fmt.Errorf("setting up placement: %w", err)
	}
	if err := rollup.Setup(mgr, pool, table, cfg.Hub.ID, clk, cfg.Workers); err != nil {
		return fmt.Errorf("setting up rollup: %w", err)
	}
	// Health never depends on members: a sick one must not restart the manager.
	if err := hub.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := hub.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	return nil
}

func managerOptions(cfg *Config, hubConfig *rest.Config, scheme *runtime.Scheme) (mcmanager.Options, error) {
	options := mcmanager.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform:            cache.TransformStripManagedFields(),
			ReaderFailOnMissingInformer: true,
		},
		Client: client.Options{
			// Secrets are read through the pool's own label-selected informers only.
			Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.Namespace{}}},
		},
		NewClient:              hubClient(cfg.Hub.QPS),
		Metrics:                metricsserver.Options{BindAddress: cfg.Metrics.BindAddress},
		HealthProbeBindAddress: cfg.Health.BindAddress,
		PprofBindAddress:       cfg.Profiling.BindAddress,
	}
	if cfg.Metrics.BindAddress != "0" {
		options.Metrics.SecureServing = true
		options.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if cfg.LeaderElection.Enabled {
		lock, err := leaderLock(hubConfig, cfg.LeaderElection.Namespace)
		if err != nil {
			return options, fmt.Errorf("preparing leader election: %w", err)
		}
		options.LeaderElection = true
		options.LeaderElectionResourceLockInterface = lock
		options.LeaderElectionReleaseOnCancel = true
		options.LeaseDuration = new(leaseDuration)
		options.RenewDeadline = new(renewDeadline)
		options.RetryPeriod = new(retryPeriod)
	}
	return options, nil
}

// leaderLock is a Lease without events: a restart changes nothing that is worth one.
func leaderLock(hubConfig *rest.Config, namespace string) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	// A request may take half of the last argument: one that gets no answer makes room for the next attempt.
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, "flotilla-manager", identity, hubConfig, 2*leaseTimeout)
}

func loadKubeconfig(path string) (*rest.Config, error) {
	if path != "" {
		return clientcmd.BuildConfigFromFlags("", path)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig is missing, and this is no Pod on the hub: %w", err)
	}
	return config, nil
}

func hubRESTConfig(kubeconfig string) (*rest.Config, error) {
	config, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := findOutDeadConnections(); err != nil {
		return nil, err
	}
	// A dialer of its own gives each client a connection of its own, so that leader election does not share one.
	config.Dial = (&net.Dialer{Timeout: hubDialTimeout, KeepAlive: 30 * time.Second}).DialContext
	config.Wrap(holdWatches)
	config.UserAgent = "flotilla-manager"
	// The hub shares its capacity out itself, by API Priority and Fairness.
	config.QPS = -1
	return config, nil
}

// hubClient returns how the client that writes to the hub is made. The limit is not that of live reads, events and the
// Lease: reads come before a write that has waited for its turn, events have limits of their own, and the Lease must be
// renewed however much there is to write.
func hubClient(qps int) client.NewClientFunc {
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		if qps > 0 {
			config = rest.CopyConfig(config)
			config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(qps), hubBurst*qps)
		}
		return client.New(config, options)
	}
}

// findOutDeadConnections sets how client-go finds out that a connection has died, unless the environment says so already.
// There is no other way to tell it. Only the hub's connections are made by client-go: members have transports of the pool.
func findOutDeadConnections() error {
	for name, timeout := range map[string]time.Duration{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": hubReadIdleTimeout,
		"HTTP2_PING_TIMEOUT_SECONDS":      hubPingTimeout,
	} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, strconv.Itoa(int(timeout.Seconds()))); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

func sources(configured []SourceConfig) []clusters.Source {
	out := make([]clusters.Source, 0, len(configured))
	for _, source := range configured {
		conventions := make([]clusters.Convention, 0, len(source.Conventions))
		for _, name := range source.Conventions {
			conventions = append(conventions, clusters.Convention(name))
		}
		out = append(out, clusters.Source{Namespace: source.Namespace, Conventions: conventions})
	}
	return out
}
