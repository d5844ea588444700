// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

var hubServer, memberServer *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &hubServer, &memberServer)) }

const (
	hubID = "hub-under-test"
	// eu1 is the member with an API server; the others in a test are only talked about.
	eu1 = "eu-1"
)

// directory is a Directory whose only engaged member is eu-1, unless there are others.
type directory struct {
	mu          sync.Mutex
	snapshots   map[string]clusters.Snapshot
	subscribers []func(multicluster.ClusterName)

	member cluster.Cluster
	others map[string]cluster.Cluster
}

func (d *directory) Member(name multicluster.ClusterName) (cluster.Cluster, error) {
	if other, found := d.others[string(name)]; found {
		return other, nil
	}
	if name != eu1 {
		return nil, fmt.Errorf("no cluster %q: %w", name, multicluster.ErrClusterNotFound)
	}
	return d.member, nil
}

func (d *directory) Snapshot(name multicluster.ClusterName) (clusters.Snapshot, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	snapshot, found := d.snapshots[string(name)]
	return snapshot, found
}

func (d *directory) Snapshots() []clusters.Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []clusters.Snapshot
	for _, snapshot := range d.snapshots {
		all = append(all, snapshot)
	}
	slices.SortFunc(all, func(a, b clusters.Snapshot) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

func (d *directory) Subscribe(fn func(multicluster.ClusterName)) {
	d.subscribers = append(d.subscribers, fn)
}

// change changes what is known about a member.
func (d *directory) change(name string, change func(*clusters.Snapshot)) {
	d.mu.Lock()
	snapshot := d.snapshots[name]
	change(&snapshot)
	d.snapshots[name] = snapshot
	d.mu.Unlock()
	for _, fn := range d.subscribers {
		fn(multicluster.ClusterName(name))
	}
}

func snapshotOf(name string) clusters.Snapshot {
	return clusters.Snapshot{
		Name: multicluster.ClusterName(name), UID: types.UID("uid-of-" + name), State: clusters.StateReady, Accepted: true, Decided: true,
		Labels: map[string]string{"region": "eu"},
	}
}

// uncached is a member whose cache never lags.
type uncached struct {
	cluster.Cluster
	client client.Client
}

func (u uncached) GetClient() client.Client    { return u.client }
func (u uncached) GetAPIReader() client.Reader { return u.client }

// fixture is one reconciler with a hub and a member, and a count of the writes to both.
type fixture struct {
	t         *testing.T
	r         *Reconciler
	hub       client.Client
	member    client.Client
	directory *directory
	events    *events.FakeRecorder
	writes    *atomic.Int64
}

func newFixture(t *testing.T, kind fleet.Kind) *fixture {
	t.Helper()
	writes := &atomic.Int64{}
	hub, member := counting(t, hubServer.Config, writes), counting(t, memberServer.Config, writes)
	f := &fixture{
		t: t, hub: hub, member: member, writes: writes, events: events.NewFakeRecorder(100),
		directory: &directory{snapshots: map[string]clusters.Snapshot{eu1: snapshotOf(eu1)}, member: uncached{client: counting(t, memberServer.AsHub(t), writes)}},
	}
	f.r = &Reconciler{
		Kind: kind, Hub: hub, HubReader: hub, Members: f.directory, Table: fleet.NewTable(), Events: f.events, Clock: clock.RealClock{},
		Options: Options{HubID: hubID, CreateNamespaces: true},
	}
	return f
}

type roundTripper func(*http.Request) (*http.Response, error)

func (fn roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return fn(req) }

func counting(t *testing.T, config *rest.Config, writes *atomic.Int64) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodGet {
				writes.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	counted, err := client.New(config, client.Options{Scheme: testenv.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return counted
}

// pass runs a hub pass, or a copy pass when a cluster is named.
func (f *fixture) pass(object client.Object, clusterName string) ctrl.Result {
	f.t.Helper()
	result, err := f.r.Reconcile(context.Background(), requestFor(clusterName, object))
	if err != nil {
		f.t.Fatalf("pass for %q: %v", clusterName, err)
	}
	return result
}

// settle runs passes until nothing is left to do, as the watches would.
func (f *fixture) settle(object client.Object) {
	f.t.Helper()
	for range 4 {
		f.pass(object, "")
		f.pass(object, eu1)
	}
}

// wantNoWrites runs another round of passes and expects them to write nothing.
func (f *fixture) wantNoWrites(object client.Object) {
	f.t.Helper()
	before := f.writes.Load()
	f.settle(object)
	if written := f.writes.Load() - before; written != 0 {
		f.t.Errorf("passes without a change made %d writes", written)
	}
}

// wantEvents drains the recorder and expects these beginnings, in order.
func (f *fixture) wantEvents(want ...string) {
	f.t.Helper()
	for _, beginning := range want {
		select {
		case got := <-f.events.Events:
			if !strings.HasPrefix(got, beginning) {
				f.t.Errorf("event %q, want %q", got, beginning)
			}
		default:
			f.t.Errorf("no event, want %q", beginning)
		}
	}
	select {
	case got := <-f.events.Events:
		f.t.Errorf("unexpected event %q", got)
	default:
	}
}

// wantOutcome expects what placement has to say about the copy in eu-1.
func (f *fixture) wantOutcome(object client.Object, reason string) {
	f.t.Helper()
	key := fleet.ObjectKey{Kind: f.r.Kind.Name, Object: client.ObjectKeyFromObject(object)}
	if got := f.r.Table.Get(key, eu1); got.Reason != reason {
		f.t.Errorf("outcome %+v, want reason %q", got, reason)
	}
}

func (f *fixture) create(c client.Client, object client.Object) {
	f.t.Helper()
	if err := c.Create(context.Background(), object); err != nil {
		f.t.Fatal(err)
	}
}

// get reads an object and reports whether there is one.
func (f *fixture) get(c client.Client, like client.Object) bool {
	f.t.Helper()
	err := c.Get(context.Background(), client.ObjectKeyFromObject(like), like)
	if client.IgnoreNotFound(err) != nil {
		f.t.Fatal(err)
	}
	return err == nil
}

// update reads an object, changes it and writes it.
func update[T client.Object](f *fixture, c client.Client, object T, change func(T)) {
	f.t.Helper()
	if !f.get(c, object) {
		f.t.Fatalf("there is no %q", client.ObjectKeyFromObject(object))
	}
	before := object.DeepCopyObject().(client.Object)
	change(object)
	if err := c.Patch(context.Background(), object, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

// newRedis creates a Redis on the hub, in a namespace of its own, that is placed by label.
func (f *fixture) newRedis(change ...func(*flotillav1.Redis)) *flotillav1.Redis {
	f.t.Helper()
	redis := &flotillav1.Redis{}
	redis.Namespace, redis.Name = hubServer.Namespace(f.t), "cache"
	redis.Spec.Replicas = new(int32(3))
	redis.Spec.Placement = &flotillav1.Placement{ClusterSelector: selectEU()}
	for _, fn := range change {
		fn(redis)
	}
	f.create(f.hub, redis)
	return redis
}

// copyOf returns an empty copy to read into.
func copyOf(redis *flotillav1.Redis) *flotillav1.Redis {
	return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: redis.Namespace, Name: redis.Name}}
}
