// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// hub holds the clients that the pool uses to access the hub.
type hub struct {
	config *rest.Config
	// client reads MemberClusters from the manager's cache; reader reads live.
	client client.Client
	reader client.Reader
	cache  cache.Cache
	// secrets watches registrations. The manager's cache is not used, because it would cache every Secret that is
	// read.
	secrets  kubernetes.Interface
	recorder events.EventRecorder
}

// newHub returns the hub of the given manager cluster.
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
