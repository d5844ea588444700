// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// stubDirectory is a Directory that tests fill.
type stubDirectory struct {
	mu          sync.Mutex
	snapshots   map[multicluster.ClusterName]Snapshot
	members     map[multicluster.ClusterName]cluster.Cluster
	subscribers []func(multicluster.ClusterName)
}

func directoryOf(snapshots ...Snapshot) *stubDirectory {
	d := &stubDirectory{snapshots: map[multicluster.ClusterName]Snapshot{}, members: map[multicluster.ClusterName]cluster.Cluster{}}
	for _, snapshot := range snapshots {
		d.snapshots[snapshot.Name] = snapshot
	}
	return d
}

func ready(name multicluster.ClusterName) Snapshot { return Snapshot{Name: name, State: StateReady} }

func away(name multicluster.ClusterName) Snapshot {
	return Snapshot{Name: name, State: StateUnreachable}
}

// set changes what is known about a member and tells the subscribers.
func (d *stubDirectory) set(snapshot Snapshot) {
	d.mu.Lock()
	d.snapshots[snapshot.Name] = snapshot
	d.mu.Unlock()
	d.tell(snapshot.Name)
}

// remove offboards a member and tells the subscribers.
func (d *stubDirectory) remove(name multicluster.ClusterName) {
	d.mu.Lock()
	delete(d.snapshots, name)
	d.mu.Unlock()
	d.tell(name)
}

func (d *stubDirectory) tell(name multicluster.ClusterName) {
	d.mu.Lock()
	subscribers := slices.Clone(d.subscribers)
	d.mu.Unlock()
	for _, fn := range subscribers {
		fn(name)
	}
}

func (d *stubDirectory) Member(name multicluster.ClusterName) (cluster.Cluster, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if member, ok := d.members[name]; ok {
		return member, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

func (d *stubDirectory) Snapshot(name multicluster.ClusterName) (Snapshot, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	snapshot, ok := d.snapshots[name]
	return snapshot, ok
}

func (d *stubDirectory) Snapshots() []Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Snapshot
	for _, snapshot := range d.snapshots {
		all = append(all, snapshot)
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

func (d *stubDirectory) Subscribe(fn func(multicluster.ClusterName)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscribers = append(d.subscribers, fn)
}

func TestGate(t *testing.T) {
	bug := errors.New("a bug")
	tests := map[string]struct {
		request Request
		before  []Snapshot
		// after replaces what is known during the pass; nil changes nothing.
		after     []Snapshot
		passError error
		wantPass  bool
		wantError bool
	}{
		"hub passes":                                {request: requestFor("", "x"), wantPass: true},
		"hub errors are kept":                       {request: requestFor("", "x"), passError: syscall.ECONNREFUSED, wantPass: true, wantError: true},
		"ready member passes":                       {request: requestFor("a", "x"), before: []Snapshot{ready("a")}, wantPass: true},
		"paused member passes":                      {request: requestFor("a", "x"), before: []Snapshot{{Name: "a", State: StateReady, Paused: true}}, wantPass: true},
		"offboarded member is dropped":              {request: requestFor("a", "x"), before: []Snapshot{ready("b")}},
		"unreachable member is dropped":             {request: requestFor("a", "x"), before: []Snapshot{away("a")}},
		"syncing member is dropped":                 {request: requestFor("a", "x"), before: []Snapshot{{Name: "a", State: StateSyncing}}},
		"member without a good credential":          {request: requestFor("a", "x"), before: []Snapshot{{Name: "a", State: StateAuthFailed}}},
		"errors of a ready member are kept":         {request: requestFor("a", "x"), before: []Snapshot{ready("a")}, passError: bug, wantPass: true, wantError: true},
		"refused connections of a ready member too": {request: requestFor("a", "x"), before: []Snapshot{ready("a")}, passError: syscall.ECONNREFUSED, wantPass: true, wantError: true},
		"member goes away during the pass": {
			request: requestFor("a", "x"), before: []Snapshot{ready("a")}, after: []Snapshot{away("a")},
			passError: fmt.Errorf("reading: %w", syscall.ECONNREFUSED), wantPass: true,
		},
		"member is offboarded during the pass": {
			request: requestFor("a", "x"), before: []Snapshot{ready("a")}, after: []Snapshot{},
			passError: fmt.Errorf("getting the cluster: %w", multicluster.ErrClusterNotFound), wantPass: true,
		},
		"member is not ready any more during the pass": {
			request: requestFor("a", "x"), before: []Snapshot{ready("a")}, after: []Snapshot{away("a")},
			passError: &NotReadyError{Snapshot: away("a")}, wantPass: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			members := directoryOf(tc.before...)
			passed := false
			gate := &gate{controller: "gate-test", members: members, clock: clock.RealClock{}, next: reconcile.TypedFunc[Request](
				func(context.Context, Request) (reconcile.Result, error) {
					passed = true
					if tc.after != nil {
						members.mu.Lock()
						members.snapshots = directoryOf(tc.after...).snapshots
						members.mu.Unlock()
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
	members := directoryOf(ready("leaving"), ready("staying"))
	gate := &gate{controller: "metrics-test", members: members, clock: clock.RealClock{}, next: reconcile.TypedFunc[Request](
		func(_ context.Context, req Request) (reconcile.Result, error) {
			if req.Name == "last" {
				members.remove(req.ClusterName)
				forgetMetrics(string(req.ClusterName))
			}
			return reconcile.Result{}, nil
		})}
	ofTest := func() []string {
		return slices.DeleteFunc(gathered(t, reconcileSeconds), func(series string) bool { return !strings.Contains(series, `"metrics-test"`) })
	}
	for _, request := range []Request{requestFor("leaving", "x"), requestFor("staying", "x"), requestFor("", "x")} {
		if _, err := gate.Reconcile(context.Background(), request); err != nil {
			t.Fatal(err)
		}
	}
	if got := ofTest(); len(got) != 3 {
		t.Errorf("want a series for each member and one for the hub, got %q", got)
	}
	if _, err := gate.Reconcile(context.Background(), requestFor("leaving", "last")); err != nil {
		t.Fatal(err)
	}
	if got := ofTest(); len(got) != 2 {
		t.Errorf("want no series of the member that has left during its pass, got %q", got)
	}
	forgetMetrics("staying")
}

func TestMetrics_queue(t *testing.T) {
	collector := &queueCollector{depth: queues.depth, oldest: queues.oldest, inFlight: queues.inFlight, queues: map[string]measuredQueue{}}
	l := newLanes(4)
	collector.add("test", l, directoryOf(ready("busy"), ready("idle")))
	l.Add(requestFor("busy", "one"))
	l.Add(requestFor("busy", "two"))
	l.Add(requestFor("", "hub"))
	l.Add(requestFor("left", "one"))
	want := []string{
		`flotilla_queue_depth{cluster="",controller="test"} 1`,
		`flotilla_queue_depth{cluster="busy",controller="test"} 2`,
		`flotilla_queue_depth{cluster="idle",controller="test"} 0`,
		`flotilla_queue_depth{cluster="left",controller="test"} 1`,
	}
	got := slices.DeleteFunc(gathered(t, collector), func(series string) bool { return !strings.HasPrefix(series, "flotilla_queue_depth") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// gathered returns the series of a collector as "name{labels} value", the value of a histogram being its count.
func gathered(t *testing.T, collector prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var series []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			series = append(series, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","), value))
		}
	}
	return series
}
