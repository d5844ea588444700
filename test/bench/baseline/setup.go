// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mchandler "sigs.k8s.io/multicluster-runtime/pkg/handler"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/kubeconfig"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// workers is how many passes each controller runs at once, as the product's default.
const workers = 16

func newManager(ctx context.Context, hubConfig *rest.Config, namespace, profiling string) (mcmanager.Manager, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(flotillav1.AddToScheme(scheme))

	// API Priority and Fairness is the limit, on the hub and in the members.
	hubConfig.QPS = -1
	provider := kubeconfig.New(kubeconfig.Options{
		Namespace:      namespace,
		ClusterOptions: []cluster.Option{func(o *cluster.Options) { o.Scheme = scheme }},
		RESTOptions:    []func(*rest.Config) error{func(c *rest.Config) error { c.QPS = -1; return nil }},
	})
	mgr, err := mcmanager.New(hubConfig, provider, mcmanager.Options{
		Scheme:                        scheme,
		Controller:                    config.Controller{MaxConcurrentReconciles: workers},
		LeaderElection:                true,
		LeaderElectionID:              "baseline",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		PprofBindAddress:              profiling,
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	if err := provider.SetupWithManager(ctx, mgr); err != nil {
		return nil, fmt.Errorf("setting up the provider: %w", err)
	}
	hub := mgr.GetLocalManager().GetClient()
	joins := &joins{hub: hub, events: make(chan event.GenericEvent)}
	if err := mgr.Add(joins); err != nil {
		return nil, fmt.Errorf("adding the watch of joins: %w", err)
	}
	onHub, notInMembers := mcbuilder.WithEngageWithLocalCluster(true), mcbuilder.WithEngageWithProviderClusters(false)
	// Whether a copy drifted shows in its generation or its annotations.
	drift := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	err = mcbuilder.ControllerManagedBy(mgr).Named("placer").
		For(&flotillav1.NodePool{}, onHub, notInMembers, mcbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&flotillav1.NodePool{}, hubObject, mcbuilder.WithPredicates(drift)).
		WatchesRawSource(source.TypedChannel(joins.events, hubObject("", nil))).
		Complete(&Placer{Hub: hub, Members: provider})
	if err != nil {
		return nil, fmt.Errorf("setting up the placer: %w", err)
	}
	// Without a predicate: a status that was compared with an old one is looked at again when it was written.
	err = mcbuilder.ControllerManagedBy(mgr).Named("summer").
		For(&flotillav1.NodePool{}, onHub, notInMembers).
		Watches(&flotillav1.NodePool{}, hubObject).
		Complete(&Summer{Hub: hub, Members: provider})
	if err != nil {
		return nil, fmt.Errorf("setting up the summer: %w", err)
	}
	return mgr, nil
}

// hubObject queues the hub object of a copy: the one with its name.
func hubObject(multicluster.ClusterName, cluster.Cluster) mchandler.EventHandler {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []mcreconcile.Request {
		return []mcreconcile.Request{{Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}}}
	})
}

// joins queues all hub objects when a member joins.
type joins struct {
	hub    client.Client
	events chan event.GenericEvent
}

// Start implements mcmanager.Runnable.
func (j *joins) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage implements multicluster.Aware.
func (j *joins) Engage(ctx context.Context, _ multicluster.ClusterName, _ cluster.Cluster) error {
	pools := &flotillav1.NodePoolList{}
	if err := j.hub.List(ctx, pools); err != nil {
		return fmt.Errorf("listing the hub objects: %w", err)
	}
	go func() {
		for i := range pools.Items {
			select {
			case j.events <- event.GenericEvent{Object: &pools.Items[i]}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}
