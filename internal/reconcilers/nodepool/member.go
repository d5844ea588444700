// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

const (
	// fieldOwner identifies our writes in managedFields.
	fieldOwner = client.FieldOwner("flotilla-nodepool")
	// kindNodePool is the kind that may be switched off in a member.
	kindNodePool = "NodePool"
)

// writableMember returns the member, or nil if nothing may be written there now. Requests are queued again when it may.
func writableMember(members clusters.Directory, clusterName multicluster.ClusterName) (cluster.Cluster, error) {
	if snapshot, registered := members.Snapshot(clusterName); !registered || !isReconciled(snapshot) {
		return nil, nil
	}
	member, err := members.Member(clusterName)
	var notReady *clusters.NotReadyError
	if errors.Is(err, multicluster.ErrClusterNotFound) || errors.As(err, &notReady) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finding cluster %q: %w", clusterName, err)
	}
	return member, nil
}

// isReconciled reports whether NodePools of the member are reconciled now.
func isReconciled(snapshot clusters.Snapshot) bool {
	return snapshot.Writable() && snapshot.Serves(kindNodePool)
}
