// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"fmt"
	"net"
	"net/url"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// hub is what the pool uses of the hub.
type hub struct {
	config *rest.Config
	// client reads MemberClusters from the manager's cache; reader reads live.
	client client.Client
	reader client.Reader
	cache  cache.Cache
	// secrets watches registrations. It is not the manager's cache, which would hold every Secret it is asked for.
	secrets  kubernetes.Interface
	recorder events.EventRecorder
}

// newHub takes what the pool needs from the hub's manager.
func newHub(from cluster.Cluster) (*hub, error) {
	clientset, err := kubernetes.NewForConfigAndClient(from.GetConfig(), from.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client for registrations: %w", err)
	}
	return &hub{
		config: from.GetConfig(), client: from.GetClient(), reader: from.GetAPIReader(), cache: from.GetCache(),
		secrets: clientset, recorder: from.GetEventRecorder("flotilla-pool"),
	}, nil
}

// inClusterNames are the names that every cluster has for itself, and so the hub for the hub.
var inClusterNames = []string{
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// hubEndpoints lists under which host:port the hub is known.
func hubEndpoints(host string, more []string) []string {
	var endpoints []string
	for _, name := range inClusterNames {
		endpoints = append(endpoints, net.JoinHostPort(name, "443"))
	}
	if server, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: host}); err == nil && server.Host != "" {
		endpoints = append(endpoints, hostPort(server))
	}
	for _, endpoint := range more {
		endpoints = append(endpoints, hostPort(&url.URL{Host: endpoint}))
	}
	return endpoints
}
