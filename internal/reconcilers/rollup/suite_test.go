// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcluster "sigs.k8s.io/controller-runtime/pkg/cluster"
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

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// snapshotOf returns a member in a state.
func snapshotOf(name string, state clusters.State, decided bool) clusters.Snapshot {
	return clusters.Snapshot{Name: multicluster.ClusterName(name), State: state, Accepted: true, Decided: decided}
}

// uncached is a member whose cache is never stale.
type uncached struct {
	ctrlcluster.Cluster
	client client.Client
}

func (u uncached) GetClient() client.Client    { return u.client }
func (u uncached) GetAPIReader() client.Reader { return u.client }
func (u uncached) GetCache() cache.Cache       { return liveCache{reader: u.client} }

// liveCache reads what a cache would eventually return.
type liveCache struct {
	cache.Cache
	reader client.Reader
}

func (c liveCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.reader.List(ctx, list, options...)
}

// fixture is one reconciler with a hub and a member, and a count of the writes to the hub.
type fixture struct {
	t         *testing.T
	r         *Reconciler
	summary   *Summary
	hub       client.Client
	member    client.Client
	directory *clusterstest.Directory
	events    *events.FakeRecorder
	clock     *clocktesting.FakeClock
	writes    *atomic.Int64
}

func newFixture(t *testing.T, kind Kind) *fixture {
	t.Helper()
	writes := &atomic.Int64{}
	f := &fixture{
		t: t, hub: counting(t, hubServer.Config, writes), member: memberServer.Client, writes: writes,
		events: events.NewFakeRecorder(100), clock: clocktesting.NewFakeClock(noon),
	}
	f.directory = clusterstest.NewDirectory(snapshotOf(eu1, clusters.StateReady, true))
	f.directory.Engage(eu1, uncached{client: f.member})
	f.restart(kind)
	return f
}

// restart drops everything that a process keeps in memory.
func (f *fixture) restart(kind Kind) {
	f.r = &Reconciler{
		Kind: kind, Hub: f.hub, Members: f.directory, Table: fleet.NewTable(), Events: f.events, Clock: f.clock,
		HubID: hubID, Pace: NewPace(objectPace, f.clock),
	}
	f.summary = &Summary{Hub: f.hub, Members: f.directory, Pace: NewPace(summaryPace, f.clock), HubID: hubID}
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

// pass runs one pass and returns the number of its writes and its requeue delay.
func (f *fixture) pass(object client.Object) (int64, time.Duration) {
	f.t.Helper()
	before := f.writes.Load()
	result, err := f.r.Reconcile(context.Background(), clusters.Request{Request: ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)}})
	if err != nil {
		f.t.Fatal(err)
	}
	return f.writes.Load() - before, result.RequeueAfter
}

// settle runs passes until every number is written, expects that this ends, and reads the object.
func (f *fixture) settle(object client.Object) {
	f.t.Helper()
	for range 3 {
		f.clock.Step(2 * time.Second)
		f.pass(object)
	}
	f.clock.Step(2 * time.Second)
	if writes, again := f.pass(object); writes != 0 || again != 0 {
		f.t.Errorf("a pass without a change made %d writes and wants to run again in %s", writes, again)
	}
	f.read(f.hub, object)
}

func (f *fixture) read(c client.Client, object client.Object) {
	f.t.Helper()
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		f.t.Fatal(err)
	}
}

// create creates an object until the end of the test, because summaries count all objects of a member.
func (f *fixture) create(c client.Client, object client.Object) {
	f.t.Helper()
	if err := c.Create(context.Background(), object); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Delete(context.Background(), object) })
}

// status changes the status of an object.
func status[T client.Object](f *fixture, c client.Client, object T, change func(T)) {
	f.t.Helper()
	f.read(c, object)
	before := object.DeepCopyObject().(client.Object)
	change(object)
	if err := c.Status().Patch(context.Background(), object, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

// spec changes the rest of an object.
func spec[T client.Object](f *fixture, c client.Client, object T, change func(T)) {
	f.t.Helper()
	f.read(c, object)
	before := object.DeepCopyObject().(client.Object)
	change(object)
	if err := c.Patch(context.Background(), object, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}

// place creates or changes the copy in eu-1 as placement does.
func (f *fixture) place(hubObject, placed fleet.Object) {
	f.t.Helper()
	f.read(f.hub, hubObject)
	specs, err := fleet.NewSpecs(f.r.Kind.Kind, hubObject)
	if err != nil {
		f.t.Fatal(err)
	}
	want, err := specs.For(eu1, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	placed.SetNamespace(hubObject.GetNamespace())
	placed.SetName(hubObject.GetName())
	annotations := map[string]string{
		flotillav1.AnnotationHub:           hubID,
		flotillav1.AnnotationPlacedFrom:    fleet.PlacedFrom(client.ObjectKeyFromObject(hubObject)),
		flotillav1.AnnotationHubUID:        string(hubObject.GetUID()),
		flotillav1.AnnotationHubGeneration: strconv.FormatInt(hubObject.GetGeneration(), 10),
		flotillav1.AnnotationSpecHash:      want.Hash,
	}
	if placed.GetUID() != "" {
		spec(f, f.member, placed, func(o fleet.Object) { o.SetAnnotations(annotations) })
		return
	}
	placed.SetAnnotations(annotations)
	f.create(f.member, placed)
}

func ready(condition metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{
		Type: flotillav1.ConditionReady, Status: condition, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(noon),
	}}
}

// wantConditions compares conditions with "<status> <reason>" by type.
func (f *fixture) wantConditions(object fleet.Object, want map[string]string) {
	f.t.Helper()
	for _, condition := range *object.GetConditions() {
		if expected, found := want[condition.Type]; found && expected != string(condition.Status)+" "+condition.Reason {
			f.t.Errorf("%s is %s %s (%s), want %s", condition.Type, condition.Status, condition.Reason, condition.Message, expected)
		}
		delete(want, condition.Type)
	}
	for missing := range want {
		f.t.Errorf("there is no condition %s", missing)
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
