// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// recorded is an event as it was given to client-go.
type recorded struct {
	Regarding, Related         *corev1.ObjectReference
	Type, Reason, Action, Note string
}

// eventLog is the recorder of one cluster, as Recorders and as the recorder that they give.
type eventLog struct {
	mu     sync.Mutex
	events []recorded
}

func (l *eventLog) GetEventRecorder(string) events.EventRecorder { return l }

func (l *eventLog) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	event := recorded{Regarding: regarding.(*corev1.ObjectReference), Type: eventType, Reason: reason, Action: action, Note: fmt.Sprintf(note, args...)}
	if related != nil {
		event.Related = related.(*corev1.ObjectReference)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

// take returns what was recorded and forgets it.
func (l *eventLog) take() []recorded {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.events
	l.events = nil
	return taken
}

// recordingCluster is a member of which only the recorder is used.
type recordingCluster struct {
	cluster.Cluster
	*eventLog
}

func (c recordingCluster) GetEventRecorder(name string) events.EventRecorder {
	return c.eventLog.GetEventRecorder(name)
}

type recorderTest struct {
	clusters.Recorder
	members     *clusterstest.Directory
	hub, member *eventLog
	clock       *testingclock.FakeClock
}

func newRecorderTest(snapshot clusters.Snapshot, onHub ...client.Object) recorderTest {
	test := recorderTest{
		members: clusterstest.NewDirectory(snapshot), hub: &eventLog{}, member: &eventLog{},
		clock: testingclock.NewFakeClock(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)),
	}
	test.members.Engage("eu-1", recordingCluster{eventLog: test.member})
	test.Recorder = NewRecorder(Options{
		HubID: "main", Scheme: testenv.Scheme(), Members: test.members, Hub: test.hub, Clock: test.clock,
		HubReader: fake.NewClientBuilder().WithScheme(testenv.Scheme()).WithObjects(onHub...).Build(),
	})
	return test
}

func copyOf(placedFrom string) *flotillav1.Redis {
	return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "cart", UID: "copy-uid", ResourceVersion: "17",
		Annotations: map[string]string{
			flotillav1.AnnotationHub: "main", flotillav1.AnnotationPlacedFrom: placedFrom, flotillav1.AnnotationHubUID: "annotated-uid",
		},
	}}
}

func ref(apiVersion, kind, namespace, name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name, UID: uid}
}

func TestRecorder_references(t *testing.T) {
	const flotilla = "flotilla.dev/v1alpha1"
	hubRedis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "hub-uid"}}
	memberCluster := &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1", UID: "member-cluster-uid"}}
	hubPool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "hub-pool-uid"}}

	foreign := copyOf("shop/cart")
	foreign.Annotations[flotillav1.AnnotationHub] = "another"
	own := copyOf("shop/cart")
	own.Annotations = nil
	poolCopy := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu", UID: "pool-copy-uid", Annotations: map[string]string{
		flotillav1.AnnotationHub: "main", flotillav1.AnnotationPlacedFrom: "/gpu",
	}}}
	liar := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "liar", UID: "liar-uid", Annotations: copyOf("shop/cart").Annotations}}

	tests := map[string]struct {
		regarding client.Object
		onHub     []client.Object
		// wantMember and wantHub are what the event regards.
		wantMember, wantHub *corev1.ObjectReference
	}{
		"copy": {
			regarding: copyOf("shop/cart"), onHub: []client.Object{hubRedis, memberCluster},
			wantMember: ref(flotilla, "Redis", "shop", "cart", "copy-uid"), wantHub: ref(flotilla, "Redis", "shop", "cart", "hub-uid"),
		},
		"copy whose hub object is not in the cache": {
			regarding: copyOf("shop/cart"), onHub: []client.Object{memberCluster},
			wantMember: ref(flotilla, "Redis", "shop", "cart", "copy-uid"), wantHub: ref(flotilla, "Redis", "shop", "cart", "annotated-uid"),
		},
		"copy of a cluster-scoped object": {
			regarding: poolCopy, onHub: []client.Object{hubPool, memberCluster},
			wantMember: ref(flotilla, "NodePool", "", "gpu", "pool-copy-uid"), wantHub: ref(flotilla, "NodePool", "", "gpu", "hub-pool-uid"),
		},
		"object of the member": {
			regarding: own, onHub: []client.Object{hubRedis, memberCluster},
			wantMember: ref(flotilla, "Redis", "shop", "cart", "copy-uid"), wantHub: ref(flotilla, "MemberCluster", "", "eu-1", "member-cluster-uid"),
		},
		"copy of another hub": {
			regarding: foreign, onHub: []client.Object{hubRedis, memberCluster},
			wantMember: ref(flotilla, "Redis", "shop", "cart", "copy-uid"), wantHub: ref(flotilla, "MemberCluster", "", "eu-1", "member-cluster-uid"),
		},
		"copy without a name": {
			regarding: copyOf("shop/"), onHub: []client.Object{memberCluster},
			wantMember: ref(flotilla, "Redis", "shop", "cart", "copy-uid"), wantHub: ref(flotilla, "MemberCluster", "", "eu-1", "member-cluster-uid"),
		},
		"object of another kind with the annotations of a copy": {
			regarding: liar, onHub: []client.Object{hubRedis},
			wantMember: ref("v1", "Pod", "shop", "liar", "liar-uid"), wantHub: ref(flotilla, "MemberCluster", "", "eu-1", ""),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			test := newRecorderTest(clusterstest.Ready("eu-1"), tc.onHub...)
			test.Record("eu-1", tc.regarding, clusters.Event{
				Type: corev1.EventTypeWarning, Reason: "PodRecreated", Action: "Recreate", Note: "Recreated 100% of Pod cart-0",
				Related: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-0", UID: "pod-uid", ResourceVersion: "4"}},
			})
			pod := ref("v1", "Pod", "shop", "cart-0", "pod-uid")
			wantMember := []recorded{{
				Regarding: tc.wantMember, Related: pod, Type: "Warning", Reason: "PodRecreated", Action: "Recreate",
				Note: "Recreated 100% of Pod cart-0",
			}}
			wantHub := []recorded{{
				Regarding: tc.wantHub, Related: pod, Type: "Warning", Reason: "PodRecreated", Action: "Recreate",
				Note: "eu-1: Recreated 100% of Pod cart-0",
			}}
			if diff := cmp.Diff(wantMember, test.member.take()); diff != "" {
				t.Errorf("in the member (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantHub, test.hub.take()); diff != "" {
				t.Errorf("on the hub (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecorder_where(t *testing.T) {
	tests := map[string]struct {
		snapshot            clusters.Snapshot
		regarding           client.Object
		wantMember, wantHub int
	}{
		"ready":        {snapshot: clusterstest.Ready("eu-1"), wantMember: 1, wantHub: 1},
		"unreachable":  {snapshot: clusterstest.Away("eu-1"), wantHub: 1},
		"paused":       {snapshot: clusters.Snapshot{Name: "eu-1", State: clusters.StateReady, Paused: true}, wantHub: 1},
		"offboarded":   {snapshot: clusterstest.Ready("eu-2")},
		"unknown kind": {snapshot: clusterstest.Ready("eu-1"), regarding: unknownKind{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			test := newRecorderTest(tc.snapshot)
			if tc.regarding == nil {
				tc.regarding = copyOf("shop/cart")
			}
			test.Record("eu-1", tc.regarding, clusters.Event{Reason: "Placed", Note: "Placed"})
			if inMember, onHub := test.member.take(), test.hub.take(); len(inMember) != tc.wantMember || len(onHub) != tc.wantHub {
				t.Errorf("got %d events in the member and %d on the hub, want %d and %d", len(inMember), len(onHub), tc.wantMember, tc.wantHub)
			}
		})
	}
}

// unknownKind is an object that no scheme knows.
type unknownKind struct{ *flotillav1.Redis }

func TestRecorder_words_that_the_server_accepts(t *testing.T) {
	test := newRecorderTest(clusterstest.Ready("eu-1"))
	test.Record("eu-1", copyOf("shop/cart"), clusters.Event{
		Type: "Error", Reason: strings.Repeat("r", 200), Note: "bad\x00\n\xff " + strings.Repeat("ü", 1000), Related: unknownKind{},
	})
	onHub, inMember := test.hub.take(), test.member.take()
	for _, event := range append(onHub, inMember...) {
		if event.Type != "Normal" || len(event.Reason) != 128 || len(event.Action) != 128 {
			t.Errorf("the server would refuse type %q, reason %q, action %q", event.Type, event.Reason, event.Action)
		}
		if len(event.Note) > 1000 || len(event.Note) < 998 || !utf8.ValidString(event.Note) || strings.ContainsAny(event.Note, "\x00\n") {
			t.Errorf("a note of %d bytes: %q", len(event.Note), event.Note)
		}
	}
	if inMember[0].Related != nil {
		t.Errorf("an object of an unknown kind became related: %v", inMember[0].Related)
	}
	if !strings.HasPrefix(onHub[0].Note, "eu-1: bad ü") {
		t.Errorf("the hub's note does not begin with the name of the cluster: %q", onHub[0].Note[:20])
	}
	test.Record("eu-1", copyOf("shop/cart"), clusters.Event{})
	if event := test.hub.take()[0]; event.Reason == "" || event.Action == "" {
		t.Errorf("an event without words: %+v", event)
	}
}

func TestRecorder_limit(t *testing.T) {
	test := newRecorderTest(clusterstest.Ready("eu-1"))
	test.members.Set(clusterstest.Ready("quiet"))
	record := func(clusterName string, count int) {
		for range count {
			test.Record(multicluster.ClusterName(clusterName), copyOf("shop/cart"), clusters.Event{Reason: "Placed", Note: "Placed"})
		}
	}
	record("eu-1", 80)
	if got := len(test.hub.take()); got != 50 {
		t.Errorf("a storm: got %d events on the hub, want the burst of 50", got)
	}
	record("quiet", 1)
	if got := len(test.hub.take()); got != 1 {
		t.Errorf("another member beside the storm: got %d events, want 1", got)
	}
	test.clock.Step(2 * time.Second)
	record("eu-1", 5)
	if got := len(test.hub.take()); got != 2 {
		t.Errorf("two seconds later: got %d events, want 2", got)
	}
	test.clock.Step(time.Minute)
	want := []recorded{{
		Regarding: ref("flotilla.dev/v1alpha1", "MemberCluster", "", "eu-1", ""), Type: "Warning", Reason: "EventsSuppressed", Action: "Suppress",
		Note: "eu-1: Suppressed 33 events over the limit of 1 per second",
	}}
	if diff := cmp.Diff(want, test.hub.take()); diff != "" {
		t.Errorf("after the storm (-want +got):\n%s", diff)
	}
	test.clock.Step(time.Hour)
	if got := test.hub.take(); len(got) != 0 {
		t.Errorf("the suppressed events were counted twice: %+v", got)
	}
	record("eu-1", 60)
	test.hub.take()
	test.members.Remove("eu-1")
	test.clock.Step(time.Hour)
	if got := test.hub.take(); len(got) != 0 {
		t.Errorf("a count of a member that has left: %+v", got)
	}
}
