// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
)

func TestLeaderCollector(t *testing.T) {
	collector := &leaderCollector{failovers: leaders.failovers, primary: leaders.primary, sentinels: leaders.sentinels, seen: map[clusters.Request]leading{}}
	of := func(name string) clusters.Request {
		return clusters.Request{ClusterName: "eu-1", Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}}
	}
	collector.note(of("web"), sentinelState(func(s *state) { s.pods[2].votes = false }), flotillav1.RedisStatus{Primary: "web-1", PrimaryEpoch: new(int64(4)), Failovers: 4})
	collector.note(of("new"), sentinelState(), flotillav1.RedisStatus{})
	collector.note(of("lost"), sentinelState(func(s *state) { s.pods = nil }), flotillav1.RedisStatus{PrimaryEpoch: new(int64(4))})
	collector.note(of("plain"), stateOf(), flotillav1.RedisStatus{Primary: "plain-0"})
	collector.note(of("stopped"), sentinelState(func(s *state) { s.spec.Replicas = new(int32(0)) }), flotillav1.RedisStatus{})
	want := `
# HELP flotilla_redis_failovers_total Changes of the primary of a Redis in mode Sentinel, planned ones included.
# TYPE flotilla_redis_failovers_total counter
flotilla_redis_failovers_total{cluster="eu-1",name="lost",namespace="shop"} 0
flotilla_redis_failovers_total{cluster="eu-1",name="web",namespace="shop"} 4
# HELP flotilla_redis_primary_info The Pod that is the primary of a Redis in mode Sentinel; absent while it is not known.
# TYPE flotilla_redis_primary_info gauge
flotilla_redis_primary_info{cluster="eu-1",name="web",namespace="shop",pod="web-1"} 1
# HELP flotilla_redis_sentinels Sentinels of a Redis that run. Two of three are needed.
# TYPE flotilla_redis_sentinels gauge
flotilla_redis_sentinels{cluster="eu-1",name="lost",namespace="shop"} 0
flotilla_redis_sentinels{cluster="eu-1",name="web",namespace="shop"} 2
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	collector.forget(of("web"))
	collector.forgetCluster("eu-2")
	if got := testutil.CollectAndCount(collector); got != 2 {
		t.Errorf("%d series are left, want 2", got)
	}
	collector.forgetCluster("eu-1")
	if got := testutil.CollectAndCount(collector); got != 0 {
		t.Errorf("%d series are left of a cluster that is gone", got)
	}
}
