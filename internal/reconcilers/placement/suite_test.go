// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"net/http"
	"os"
	"strings"
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
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

var hubServer, memberServer *testenv.Cluster

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, &hubServer, &memberServer)) }

const (
	hubID = "hub-under-test"
	// eu1 is the member with an API server; the other members of a test exist by name only.
	eu1 = "eu-1"
)

func snapshotOf(name string) clusters.Snapshot {
	return clusters.Snapshot{
		Name: multicluster.ClusterName(name), UID: types.UID("uid-of-" + name), State: clusters.StateReady, Accepted: true, Decided: true,
		Labels: map[string]string{"region": "eu"},
	}
}

// uncached is a member whose cache is never stale.
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
	directory *clusterstest.Directory
	events    *events.FakeRecorder
	writes    *atomic.Int64
}

func newFixture(t *testing.T, kind fleet.Kind) *fixture {
	t.Helper()
	writes := &atomic.Int64{}
	hub, member := counting(t, hubServer.Config, writes), counting(t, memberServer.Config, writes)
	f := &fixture{
		t: t, hub: hub, member: member, writes: writes, events: events.NewFakeRecorder(100),
		directory: clusterstest.NewDirectory(snapshotOf(eu1)),
	}
	f.directory.Engage(eu1, uncached{client: counting(t, memberServer.AsHub(t), writes)})
	f.r = &Reconciler{
		Kind: kind, Hub: hub, HubReader: hub, Members: f.directory, Table: fleet.NewTable(), Events: f.events, Clock: clock.RealClock{},
		Options: Options{HubID: hubID, CreateNamespaces: true},
	}
	return f
}

// engaged returns the cluster of a member.
func (f *fixture) engaged(name string) cluster.Cluster {
	f.t.Helper()
	member, err := f.directory.Member(multicluster.ClusterName(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return member
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

// settle runs passes until nothing changes, as the watches would.
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

// wantOutcome expects the outcome of placement for the copy in eu-1.
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

// get reads an object and reports whether it exists.
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

// copyOf returns an empty copy for reading.
func copyOf(redis *flotillav1.Redis) *flotillav1.Redis {
	return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: redis.Namespace, Name: redis.Name}}
}
