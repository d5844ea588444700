// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/fleet/sanitize"
)

var redisKind = Kind{
	Kind: fleet.Redis,
	written: func(object fleet.Object) fleet.Object {
		status := object.(*flotillav1.Redis).Status
		status.PlacedIn = nil
		return &flotillav1.Redis{ObjectMeta: named(object), Status: status}
	},
	draft: func(object fleet.Object) fleet.Object {
		draft := *object.(*flotillav1.Redis)
		placedIn := draft.Status.PlacedIn
		draft.Status.PlacedIn = nil
		draft.Status = *draft.Status.DeepCopy()
		draft.Status.PlacedIn = placedIn
		return &draft
	},
	numbers: func(copied fleet.Object) any {
		seen := copied.(*flotillav1.Redis).Status
		return redisNumbers{
			replicas: seen.Replicas, ready: seen.ReadyReplicas, updated: seen.UpdatedReplicas, asked: ptr.Deref(copied.(*flotillav1.Redis).Spec.Replicas, 1),
			leader: leader{primary: podOf(seen.Primary), failovers: seen.Failovers, last: unixOf(seen.LastFailoverTime)},
		}
	},
	published: func(hubObject fleet.Object) map[string]any {
		published := map[string]any{}
		for _, entry := range hubObject.(*flotillav1.Redis).Status.Clusters {
			published[entry.Name] = redisNumbers{
				replicas: entry.Replicas, ready: entry.ReadyReplicas, updated: entry.UpdatedReplicas,
				leader: leader{primary: entry.Primary, failovers: entry.Failovers, last: unixOf(entry.LastFailoverTime)},
			}
		}
		return published
	},
	shown: func(seen *cluster, updated bool, published any) any {
		numbers, known := seen.numbers.(redisNumbers)
		switch {
		case known && !updated:
			numbers.updated = 0
			return numbers
		case known || seen.Visible():
			return seen.numbers
		}
		return cmp.Or(published, seen.kept)
	},
	newSums: func() sums { return &redisSums{} },
}

// redisNumbers are the counts of a Redis in a member, the replicas that its spec requests, and its primary.
type redisNumbers struct {
	replicas, ready, updated, asked int32
	leader
}

// leader is the primary of a Redis in a member, how often it has changed, and when it did last, in seconds; 0 if never.
type leader struct {
	primary   string
	failovers int32
	last      int64
}

// podOf returns what a member reports as the name of a Pod, or "" if it is none.
func podOf(name string) string {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

func unixOf(at *metav1.Time) int64 {
	if at == nil || at.IsZero() {
		return 0
	}
	return at.Unix()
}

// redisSums are the sums over the visible Redises. The desired replicas are summed over all chosen clusters, and the
// failovers over all whose number is known, so that a member that cannot be observed does not reduce the sum.
type redisSums struct{ replicas, ready, updated, desired, failovers int64 }

func (s *redisSums) count(r *row, times int32) {
	// A copy that is only kept is not desired, so its replicas do not count either.
	if seen, ok := r.shown.(redisNumbers); ok && r.entry.Visible && r.entry.Fate != fleet.FateLeave {
		add(&s.replicas, seen.replicas, times)
		add(&s.ready, seen.ready, times)
		add(&s.updated, seen.updated, times)
	}
	if seen, ok := r.shown.(redisNumbers); ok && r.entry.Fate != fleet.FateLeave {
		add(&s.failovers, seen.failovers, times)
	}
	add(&s.desired, r.asked, times)
}

func (s *redisSums) fill(hubObject fleet.Object, listed []*row) {
	status := &hubObject.(*flotillav1.Redis).Status
	status.ObservedGeneration = hubObject.GetGeneration()
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas = total(s.replicas), total(s.ready), total(s.updated)
	status.DesiredReplicas = total(s.desired)
	status.Failovers = total(s.failovers)
	status.PrimaryEpoch, status.LastFailoverTime = nil, nil
	status.Selector, status.Primary, status.Members, status.Clusters = "", "", nil, nil
	for _, row := range listed {
		entry := flotillav1.RedisClusterStatus{ClusterStatus: row.entry.ClusterStatus}
		if seen, ok := row.shown.(redisNumbers); ok {
			entry.Replicas, entry.ReadyReplicas, entry.UpdatedReplicas = sanitize.Count(seen.replicas), sanitize.Count(seen.ready), sanitize.Count(seen.updated)
			entry.Primary, entry.Failovers = seen.primary, sanitize.Count(seen.failovers)
			if seen.last > 0 {
				entry.LastFailoverTime = &metav1.Time{Time: time.Unix(seen.last, 0)}
			}
		}
		status.Clusters = append(status.Clusters, entry)
	}
}

// add adds a counter from a member with a factor.
func add(sum *int64, value, times int32) { *sum += int64(sanitize.Count(value)) * int64(times) }

// total returns a sum, clamped to what can be published.
func total(sum int64) int32 { return int32(min(sum, math.MaxInt32)) }
