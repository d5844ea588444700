// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
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
	want := []string{
		"flotilla_redis_failovers_total eu-1 lost shop 0",
		"flotilla_redis_failovers_total eu-1 web shop 4",
		"flotilla_redis_primary_info eu-1 web shop web-1 1",
		"flotilla_redis_sentinels eu-1 lost shop 0",
		"flotilla_redis_sentinels eu-1 web shop 2",
	}
	if diff := cmp.Diff(want, seriesOf(t, collector)); diff != "" {
		t.Errorf("series differ (-want +got):\n%s", diff)
	}
	collector.forget(of("web"))
	collector.forgetCluster("eu-2")
	if got := seriesOf(t, collector); len(got) != 2 {
		t.Errorf("%v are left, want two", got)
	}
	collector.forgetCluster("eu-1")
	if got := seriesOf(t, collector); len(got) != 0 {
		t.Errorf("%v are left of a cluster that is gone", got)
	}
}

// seriesOf returns the series of a collector with the values of their labels, sorted.
func seriesOf(t *testing.T, collector prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var series []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			text := family.GetName()
			for _, label := range metric.GetLabel() {
				text += " " + label.GetValue()
			}
			series = append(series, fmt.Sprint(text, " ", metric.GetCounter().GetValue()+metric.GetGauge().GetValue()))
		}
	}
	slices.Sort(series)
	return series
}
