// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstest

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

// Directory is a clusters.Directory whose content is set by tests. Every change calls the subscribers.
type Directory struct {
	mu          sync.Mutex
	snapshots   map[multicluster.ClusterName]clusters.Snapshot
	members     map[multicluster.ClusterName]cluster.Cluster
	subscribers []func(multicluster.ClusterName)
}

// NewDirectory returns a Directory with the given snapshots. No member is engaged.
func NewDirectory(snapshots ...clusters.Snapshot) *Directory {
	d := &Directory{snapshots: map[multicluster.ClusterName]clusters.Snapshot{}, members: map[multicluster.ClusterName]cluster.Cluster{}}
	for _, snapshot := range snapshots {
		d.snapshots[snapshot.Name] = snapshot
	}
	return d
}

// Replace replaces all snapshots. Members without one are removed.
func (d *Directory) Replace(snapshots ...clusters.Snapshot) {
	for _, before := range d.Snapshots() {
		if !slices.ContainsFunc(snapshots, func(s clusters.Snapshot) bool { return s.Name == before.Name }) {
			d.Remove(before.Name)
		}
	}
	for _, snapshot := range snapshots {
		d.Set(snapshot)
	}
}

// Engage sets the cluster that Member returns.
func (d *Directory) Engage(name multicluster.ClusterName, member cluster.Cluster) {
	d.mu.Lock()
	d.members[name] = member
	d.mu.Unlock()
	d.notify(name)
}

// Ready returns the snapshot of a member in StateReady.
func Ready(name multicluster.ClusterName) clusters.Snapshot {
	return clusters.Snapshot{Name: name, State: clusters.StateReady}
}

// Away returns the snapshot of a member in StateUnreachable.
func Away(name multicluster.ClusterName) clusters.Snapshot {
	return clusters.Snapshot{Name: name, State: clusters.StateUnreachable}
}

// Set stores a snapshot.
func (d *Directory) Set(snapshot clusters.Snapshot) {
	d.mu.Lock()
	d.snapshots[snapshot.Name] = snapshot
	d.mu.Unlock()
	d.notify(snapshot.Name)
}

// Change modifies the snapshot of a member. A member without one starts with the zero Snapshot.
func (d *Directory) Change(name multicluster.ClusterName, change func(*clusters.Snapshot)) {
	snapshot, _ := d.Snapshot(name)
	snapshot.Name = name
	change(&snapshot)
	d.Set(snapshot)
}

// Remove removes the snapshot of a member.
func (d *Directory) Remove(name multicluster.ClusterName) {
	d.mu.Lock()
	delete(d.snapshots, name)
	d.mu.Unlock()
	d.notify(name)
}

// notify calls the subscribers.
func (d *Directory) notify(name multicluster.ClusterName) {
	d.mu.Lock()
	subscribers := slices.Clone(d.subscribers)
	d.mu.Unlock()
	for _, fn := range subscribers {
		fn(name)
	}
}

// Member implements clusters.Directory.
func (d *Directory) Member(name multicluster.ClusterName) (cluster.Cluster, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if member, ok := d.members[name]; ok {
		return member, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

// Snapshot implements clusters.Directory.
func (d *Directory) Snapshot(name multicluster.ClusterName) (clusters.Snapshot, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	snapshot, ok := d.snapshots[name]
	return snapshot, ok
}

// Snapshots implements clusters.Directory.
func (d *Directory) Snapshots() []clusters.Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]clusters.Snapshot, 0, len(d.snapshots))
	for _, snapshot := range d.snapshots {
		all = append(all, snapshot)
	}
	slices.SortFunc(all, func(a, b clusters.Snapshot) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Subscribe implements clusters.Directory.
func (d *Directory) Subscribe(fn func(multicluster.ClusterName)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscribers = append(d.subscribers, fn)
}

// Request returns a request for an object in the namespace default.
func Request(clusterName multicluster.ClusterName, name string) clusters.Request {
	return clusters.Request{ClusterName: clusterName, Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}}}
}
