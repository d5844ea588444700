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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/events"
	"github.com/flotilla-dev/flotilla/internal/clusters/pool"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/history"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/nodepool"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/placement"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/redis"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/rollup"
)

// The leader keeps its Lease through a hub outage of 45 seconds; after that the process exits. The deadline starts with
// the first failed attempt, and the last attempt before the deadline must happen after such an outage: with a retry
// every 10 seconds until 45, the last one would happen after 40. No other process acquires the Lease before this one
// has exited, because the deadline and the pause before the first attempt together are shorter than the duration of the
// Lease.
const (
	leaseDuration = 60 * time.Second
	renewDeadline = 50 * time.Second
	retryPeriod   = 4 * time.Second
	// leaseTimeout is the timeout of one request.
	leaseTimeout = 10 * time.Second
)

// A connection to the hub that is idle for hubReadIdleTimeout is pinged, and closed if there is no answer within
// hubPingTimeout. With the defaults, 30 and 15 seconds, a dead connection would be detected as late as the renewal of
// the Lease fails, and changes on the hub would not be observed for that time.
const (
	hubReadIdleTimeout = 15 * time.Second
	hubPingTimeout     = 10 * time.Second
	hubDialTimeout     = 5 * time.Second
)

// hubBurst is the burst of writes to the hub in seconds' worth of hub.qps.
const hubBurst = 5

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))
	return scheme
}

// newManager creates a manager with the pool and the reconcilers. restored is called when the hub has gone back to an
// earlier state.
func newManager(cfg *Config, restored func(error)) (mcmanager.Manager, error) {
	hubConfig, err := hubRESTConfig(cfg.Kubeconfig, restored)
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig: %w", err)
	}
	scheme := newScheme()
	policy, problems := cfg.Registration.policy()
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	lock, err := newLeadership(hubConfig, cfg.LeaderElection.Namespace)
	if err != nil {
		return nil, fmt.Errorf("preparing leader election: %w", err)
	}
	var leading func() time.Duration
	if cfg.LeaderElection.Enabled {
		leading = lock.left
	}
	pool, err := pool.New(pool.Config{
		HubID:          cfg.Hub.ID,
		Namespace:      cfg.LeaderElection.Namespace,
		Sources:        sources(cfg.Registration.Sources),
		Policy:         policy,
		Grace:          time.Duration(cfg.Registration.GraceSeconds) * time.Second,
		Process:        lock.Identity(),
		Leading:        leading,
		Ended:          lock.hasEnded,
		EnforceTenancy: cfg.Tenancy == tenancyEnforced,
		InstallCRDs:    cfg.Members.CRDs == crdsInstall,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the pool: %w", err)
	}
	options, err := managerOptions(cfg, scheme, lock)
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

func setup(mgr mcmanager.Manager, pool *pool.Pool, cfg *Config) error {
	hub := mgr.GetLocalManager()
	if err := pool.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the pool: %w", err)
	}
	clk := clock.RealClock{}
	recorder := events.NewRecorder(events.Options{
		HubID:     cfg.Hub.ID,
		Scheme:    hub.GetScheme(),
		Members:   pool,
		Hub:       hub,
		HubReader: hub.GetClient(),
		Clock:     clk,
	})
	table := fleet.NewTable()
	table.Slots = fleet.NewSlots(cfg.Rollouts.PerCluster)
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
	if err := history.Setup(hub); err != nil {
		return fmt.Errorf("setting up history: %w", err)
	}
	if err := rollup.Setup(mgr, pool, table, cfg.Hub.ID, clk, cfg.Workers); err != nil {
		return fmt.Errorf("setting up rollup: %w", err)
	}
	// Health never depends on members: an unhealthy one must not restart the manager.
	if err := hub.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := hub.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	return nil
}

func managerOptions(cfg *Config, scheme *runtime.Scheme, lock *leadership) (mcmanager.Options, error) {
	revisions, err := history.Cached()
	if err != nil {
		return mcmanager.Options{}, err
	}
	options := mcmanager.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform:            cache.TransformStripManagedFields(),
			ByObject:                    map[client.Object]cache.ByObject{&appsv1.ControllerRevision{}: revisions},
			ReaderFailOnMissingInformer: true,
		},
		Client: client.Options{
			// Secrets are only read through the pool's own informers, which select by label.
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
		options.LeaderElection = true
		options.LeaderElectionResourceLockInterface = lock
		options.LeaderElectionReleaseOnCancel = true
		options.LeaseDuration = new(leaseDuration)
		options.RenewDeadline = new(renewDeadline)
		options.RetryPeriod = new(retryPeriod)
	}
	return options, nil
}

func loadKubeconfig(path string) (*rest.Config, error) {
	if path != "" {
		return clientcmd.BuildConfigFromFlags("", path)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig is not set, and the process does not run in a Pod on the hub: %w", err)
	}
	return config, nil
}

// hubRESTConfig returns the configuration of the hub's clients. restored is called when the hub has gone back to an
// earlier state.
func hubRESTConfig(kubeconfig string, restored func(error)) (*rest.Config, error) {
	config, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	if err := enableHTTP2HealthChecks(); err != nil {
		return nil, err
	}
	// Each client has its own dialer and therefore its own connection, so that leader election does not share one.
	config.Dial = (&net.Dialer{Timeout: hubDialTimeout, KeepAlive: 30 * time.Second}).DialContext
	config.Wrap(holdWatches(restored))
	config.UserAgent = "flotilla-manager"
	// The hub limits its clients itself, by API Priority and Fairness.
	config.QPS = -1
	return config, nil
}

// hubClient returns a function that creates the client for writes to the hub. Its rate limit does not apply to live
// reads, events and the Lease: a read precedes a write that is limited, events have their own limits, and the renewal
// of the Lease must not wait for writes.
func hubClient(qps int) client.NewClientFunc {
	return func(config *rest.Config, options client.Options) (client.Client, error) {
		if qps > 0 {
			config = rest.CopyConfig(config)
			config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(qps), hubBurst*qps)
		}
		return client.New(config, options)
	}
}

// enableHTTP2HealthChecks sets client-go's HTTP/2 ping timeouts, unless the environment already does. They can only be
// configured by environment variables. They only affect connections to the hub: members have transports of the pool.
func enableHTTP2HealthChecks() error {
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

func sources(configured []SourceConfig) []registration.Source {
	out := make([]registration.Source, 0, len(configured))
	for _, source := range configured {
		conventions := make([]registration.Convention, 0, len(source.Conventions))
		for _, name := range source.Conventions {
			conventions = append(conventions, registration.Convention(name))
		}
		out = append(out, registration.Source{Namespace: source.Namespace, Conventions: conventions})
	}
	return out
}
