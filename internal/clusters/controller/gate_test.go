// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
)

func TestGate(t *testing.T) {
	bug := errors.New("a bug")
	tests := map[string]struct {
		request clusters.Request
		before  []clusters.Snapshot
		// after replaces what is known during the pass; nil changes nothing.
		after     []clusters.Snapshot
		passError error
		wantPass  bool
		wantError bool
	}{
		"hub passes":                                {request: clusterstest.Request("", "x"), wantPass: true},
		"hub errors are kept":                       {request: clusterstest.Request("", "x"), passError: syscall.ECONNREFUSED, wantPass: true, wantError: true},
		"ready member passes":                       {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Ready("a")}, wantPass: true},
		"paused member passes":                      {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{{Name: "a", State: clusters.StateReady, Paused: true}}, wantPass: true},
		"offboarded member is dropped":              {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Ready("b")}},
		"unreachable member is dropped":             {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Away("a")}},
		"syncing member is dropped":                 {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{{Name: "a", State: clusters.StateSyncing}}},
		"member without a good credential":          {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{{Name: "a", State: clusters.StateAuthFailed}}},
		"errors of a ready member are kept":         {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Ready("a")}, passError: bug, wantPass: true, wantError: true},
		"refused connections of a ready member too": {request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Ready("a")}, passError: syscall.ECONNREFUSED, wantPass: true, wantError: true},
		"member goes away during the pass": {
			request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Ready("a")}, after: []clusters.Snapshot{clusterstest.Away("a")},
			passError: fmt.Errorf("reading: %w", syscall.ECONNREFUSED), wantPass: true,
		},
		"member is offboarded during the pass": {
			request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Ready("a")}, after: []clusters.Snapshot{},
			passError: fmt.Errorf("getting the cluster: %w", multicluster.ErrClusterNotFound), wantPass: true,
		},
		"member is not ready any more during the pass": {
			request: clusterstest.Request("a", "x"), before: []clusters.Snapshot{clusterstest.Ready("a")}, after: []clusters.Snapshot{clusterstest.Away("a")},
			passError: &clusters.NotReadyError{Snapshot: clusterstest.Away("a")}, wantPass: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			members := clusterstest.NewDirectory(tc.before...)
			passed := false
			gate := &gate{controller: "gate-test", members: members, clock: clock.RealClock{}, next: reconcile.TypedFunc[clusters.Request](
				func(context.Context, clusters.Request) (reconcile.Result, error) {
					passed = true
					if tc.after != nil {
						members.Replace(tc.after...)
					}
					return reconcile.Result{RequeueAfter: time.Minute}, tc.passError
				})}
			result, err := gate.Reconcile(context.Background(), tc.request)
			if passed != tc.wantPass || (err != nil) != tc.wantError {
				t.Errorf("got passed=%t and error %v, want passed=%t and error=%t", passed, err, tc.wantPass, tc.wantError)
			}
			if tc.passError != nil && err != nil && !errors.Is(err, tc.passError) {
				t.Errorf("the error is another one: %v", err)
			}
			if dropped := !tc.wantPass || tc.passError != nil && !tc.wantError; dropped && result != (reconcile.Result{}) {
				t.Errorf("dropped work is to come again: %+v", result)
			}
		})
	}
}

func TestMetrics_end_with_the_member(t *testing.T) {
	members := clusterstest.NewDirectory(clusterstest.Ready("leaving"), clusterstest.Ready("staying"))
	gate := &gate{controller: "metrics-test", members: members, clock: clock.RealClock{}, next: reconcile.TypedFunc[clusters.Request](
		func(_ context.Context, req clusters.Request) (reconcile.Result, error) {
			if req.Name == "last" {
				members.Remove(req.ClusterName)
				metrics.Forget(string(req.ClusterName))
			}
			return reconcile.Result{}, nil
		})}
	ofTest := func() []string {
		return slices.DeleteFunc(clusterstest.Series(t, ctrlmetrics.Registry), func(series string) bool {
			return !strings.HasPrefix(series, "flotilla_reconcile_seconds") || !strings.Contains(series, `"metrics-test"`)
		})
	}
	for _, request := range []clusters.Request{clusterstest.Request("leaving", "x"), clusterstest.Request("staying", "x"), clusterstest.Request("", "x")} {
		if _, err := gate.Reconcile(context.Background(), request); err != nil {
			t.Fatal(err)
		}
	}
	if got := ofTest(); len(got) != 3 {
		t.Errorf("want a series for each member and one for the hub, got %q", got)
	}
	if _, err := gate.Reconcile(context.Background(), clusterstest.Request("leaving", "last")); err != nil {
		t.Fatal(err)
	}
	if got := ofTest(); len(got) != 2 {
		t.Errorf("want no series of the member that has left during its pass, got %q", got)
	}
	metrics.Forget("staying")
}

func TestMetrics_queue(t *testing.T) {
	collector := &queueCollector{depth: queues.depth, oldest: queues.oldest, inFlight: queues.inFlight, queues: map[string]measuredQueue{}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	l, members := newLanes(4), clusterstest.NewDirectory(clusterstest.Ready("busy"), clusterstest.Ready("idle"))
	collector.add("test", l, members)
	l.Add(clusterstest.Request("busy", "one"))
	l.Add(clusterstest.Request("busy", "two"))
	l.Add(clusterstest.Request("", "hub"))
	l.Add(clusterstest.Request("left", "one"))
	want := []string{
		`flotilla_queue_depth{cluster="",controller="test"} 1`,
		`flotilla_queue_depth{cluster="busy",controller="test"} 2`,
		`flotilla_queue_depth{cluster="idle",controller="test"} 0`,
		`flotilla_queue_depth{cluster="left",controller="test"} 1`,
	}
	depths := func() []string {
		return slices.DeleteFunc(clusterstest.Series(t, registry), func(series string) bool { return !strings.HasPrefix(series, "flotilla_queue_depth") })
	}
	if diff := cmp.Diff(want, depths()); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	members.Remove("idle")
	if diff := cmp.Diff(slices.Delete(want, 2, 3), depths()); diff != "" {
		t.Errorf("series after a member has left (-want +got):\n%s", diff)
	}
}
