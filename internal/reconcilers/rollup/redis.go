// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"

	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

var redisKind = Kind{
	Kind: fleet.Redis,
	written: func(object fleet.Object) fleet.Object {
		status := object.(*flotillav1.Redis).Status
		status.PlacedIn = nil
		return &flotillav1.Redis{Status: status}
	},
	numbers: func(copied fleet.Object) any {
		seen := copied.(*flotillav1.Redis).Status
		return redisNumbers{
			replicas: seen.Replicas, ready: seen.ReadyReplicas, updated: seen.UpdatedReplicas, asked: ptr.Deref(copied.(*flotillav1.Redis).Spec.Replicas, 1),
		}
	},
	fill: func(hubObject fleet.Object, rows []row) { fillRedis(hubObject.(*flotillav1.Redis), rows) },
}

// redisNumbers are what a Redis in a member counts, and how many replicas its spec asks for.
type redisNumbers struct{ replicas, ready, updated, asked int32 }

// fillRedis adds up the Redises that can be seen. What is asked for is added up over all that are chosen.
func fillRedis(hubObject *flotillav1.Redis, rows []row) {
	status := &hubObject.Status
	previous := map[string]flotillav1.RedisClusterStatus{}
	for _, entry := range status.Clusters {
		previous[entry.Name] = entry
	}
	status.ObservedGeneration = hubObject.Generation
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas, status.DesiredReplicas = 0, 0, 0, 0
	status.Selector, status.Primary, status.Members, status.Clusters = "", "", nil, nil
	for _, row := range rows {
		entry := flotillav1.RedisClusterStatus{}
		switch {
		case row.numbers != nil:
			seen := row.numbers.(redisNumbers)
			entry.Replicas, entry.ReadyReplicas = fleet.Count(seen.replicas), fleet.Count(seen.ready)
			if row.updated() {
				entry.UpdatedReplicas = fleet.Count(seen.updated)
			}
		case !row.Visible():
			published, listed := previous[row.Name]
			if kept, ok := row.kept.(redisNumbers); ok && !listed {
				published.Replicas, published.ReadyReplicas = fleet.Count(kept.replicas), fleet.Count(kept.ready)
				published.UpdatedReplicas = fleet.Count(kept.updated)
			}
			entry = published
		}
		entry.ClusterStatus = row.entry.ClusterStatus
		// A copy that is only kept is not asked for, so it is not added to what there is either.
		if row.entry.Visible && row.Fate != fleet.FateLeave {
			status.Replicas = fleet.Sum(status.Replicas, entry.Replicas)
			status.ReadyReplicas = fleet.Sum(status.ReadyReplicas, entry.ReadyReplicas)
			status.UpdatedReplicas = fleet.Sum(status.UpdatedReplicas, entry.UpdatedReplicas)
		}
		if row.Fate == fleet.FateApply && row.WantError == nil {
			status.DesiredReplicas = fleet.Sum(status.DesiredReplicas, replicasOf(row, entry))
		}
		if row.listed {
			status.Clusters = append(status.Clusters, entry)
		}
	}
}

// replicasOf is how many replicas the spec of a copy asks for. Where the hub leaves that to the member, the copy tells; as
// long as it cannot be seen, the last number of Pods stands in.
func replicasOf(r row, entry flotillav1.RedisClusterStatus) int32 {
	if replicas, ok := r.Want.Spec["replicas"].(int64); ok {
		return int32(replicas)
	}
	for _, numbers := range []any{r.numbers, r.kept} {
		if seen, ok := numbers.(redisNumbers); ok {
			return fleet.Count(seen.asked)
		}
	}
	return cmp.Or(entry.Replicas, 1)
}
