// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// liar is a member whose API server returns objects that a real one would refuse.
type liar struct {
	client.Client
	about func(client.Object)
}

func (l liar) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := l.Client.Get(ctx, key, object, options...)
	if err == nil {
		l.about(object)
	}
	return err
}

func (l liar) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := l.Client.List(ctx, list, options...)
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		if fmt.Sprintf("%T", list) != fmt.Sprintf("%T", kind.NewList()) {
			continue
		}
		for _, object := range kind.Items(list) {
			l.about(object)
		}
	}
	return err
}

// venom is a text of 1 MB.
var venom = strings.Repeat("\x1b[31m\x00\u202ehostile\xff\n", 1<<16)

// hostileConditions returns thousands of conditions, including those that are read.
func hostileConditions() []metav1.Condition {
	var conditions []metav1.Condition
	for i := range 5000 {
		conditions = append(conditions, metav1.Condition{Type: fmt.Sprint("Noise", i), Status: "Maybe", Reason: venom[:64], Message: venom[:1024]})
	}
	return append(conditions, metav1.Condition{
		Type: flotillav1.ConditionReady, Status: "Perhaps", Reason: venom, Message: venom, ObservedGeneration: math.MinInt64,
		LastTransitionTime: metav1.Unix(math.MaxInt32*1000000, 0),
	})
}

// poison fills a status with the worst possible values.
func poison(object client.Object) {
	switch o := object.(type) {
	case *flotillav1.Redis:
		o.Status.Conditions, o.Status.ObservedGeneration = hostileConditions(), math.MaxInt64
		o.Status.Replicas, o.Status.ReadyReplicas, o.Status.UpdatedReplicas = math.MinInt32, math.MaxInt32, -1
		o.Status.Selector, o.Status.Primary = venom, venom
	case *flotillav1.NodePool:
		s := &o.Status
		s.Conditions, s.ObservedGeneration, s.Status = hostileConditions(), math.MaxInt64, -7
		s.NodeCount, s.ReadyNodes, s.UpdatedNodes, s.UnschedulableNodes = math.MaxInt32, math.MinInt32, math.MaxInt32, -1
		s.Capacity, s.Allocatable = corev1.ResourceList{}, corev1.ResourceList{"cpu": resource.MustParse("-5")}
		for i := range 500 {
			s.Capacity[corev1.ResourceName(fmt.Sprintf("example.com/r%03d", i))] = resource.MustParse("9223372036854775807")
			s.Zones = append(s.Zones, flotillav1.NodeGroup{Name: fmt.Sprintf("zone-%03d", i), NodeCount: math.MinInt32, ReadyNodes: math.MaxInt32})
			s.OwnedKeys = append(s.OwnedKeys, venom[:256])
		}
		s.Capacity[corev1.ResourceName(venom[:300])] = resource.MustParse("1")
		s.Zones = append(s.Zones, flotillav1.NodeGroup{Name: venom})
	}
}

// harmless checks what part of it has reached an object of the hub.
func harmless(t *testing.T, status any) {
	t.Helper()
	document, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	if len(document) > 32<<10 {
		t.Errorf("the status has %d bytes", len(document))
	}
	var values any
	if err := json.Unmarshal(document, &values); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, child := range v {
				walk(path+"."+key, child)
			}
		case []any:
			if len(v) > 64 {
				t.Errorf("%s has %d items", path, len(v))
			}
			for _, child := range v {
				walk(path+"[]", child)
			}
		case string:
			if len(v) > 512 || strings.ContainsFunc(v, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
				t.Errorf("%s is %.80q, of %d bytes", path, v, len(v))
			}
		case float64:
			// The schema sets -1 in a status that was never written.
			if v < 0 && path != "status.observedGeneration" {
				t.Errorf("%s is %v", path, v)
			}
		}
	}
	walk("status", values)
}

func TestReconcile_hostile_copies_do_the_hub_no_harm(t *testing.T) {
	for name, tc := range map[string]struct {
		kind Kind
		make func(f *fixture) fleet.Object
		copy fleet.Object
	}{
		"Redis": {redisKind, func(f *fixture) fleet.Object {
			return f.newRedis(&flotillav1.Placement{Clusters: []string{eu1}})
		}, &flotillav1.Redis{}},
		"NodePool": {nodePoolKind, func(f *fixture) fleet.Object {
			pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}, Spec: flotillav1.NodePoolSpec{
				Placement: &flotillav1.Placement{Clusters: []string{eu1}}, Labels: map[string]flotillav1.LabelValue{"example.com/team": "ml"},
			}}
			f.create(f.hub, pool)
			return pool
		}, &flotillav1.NodePool{Spec: flotillav1.NodePoolSpec{Labels: map[string]flotillav1.LabelValue{"example.com/team": "ml"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.kind)
			hubObject := tc.make(f)
			f.place(hubObject, tc.copy)
			f.directory.Engage(eu1, uncached{client: liar{f.member, poison}})
			f.settle(hubObject)
			if document, _ := json.Marshal(hubObject); !strings.Contains(string(document), `"reason":"Other"`) {
				t.Errorf("what the copy says is not in %s", document)
			}
			switch o := hubObject.(type) {
			case *flotillav1.Redis:
				harmless(t, o.Status)
			case *flotillav1.NodePool:
				harmless(t, o.Status)
			}
			for _, condition := range *hubObject.GetConditions() {
				if condition.Type == flotillav1.ConditionReady && condition.Status == metav1.ConditionTrue {
					t.Errorf("an object whose copy says nothing that makes sense is %+v", condition)
				}
			}
		})
	}
}

func TestSummary_hostile_objects_do_the_hub_no_harm(t *testing.T) {
	f := newFixture(t, redisKind)
	f.directory.Replace()
	name := hubServer.Namespace(t)
	f.directory.Set(snapshotOf(name, clusters.StateReady, true))
	f.directory.Engage(eu1, uncached{client: liar{f.member, poison}})
	f.summary.Members = renamed{f.directory}
	published := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: name}},
	}
	f.create(f.hub, published)
	namespace := memberServer.Namespace(t)
	for i := range 30 {
		f.create(f.member, &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("own-", i)}})
	}
	request := clusters.Request{Request: ctrl.Request{NamespacedName: client.ObjectKeyFromObject(published)}}
	if _, err := f.summary.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	f.read(f.hub, published)
	harmless(t, published.Status)
	if summary := published.Status.Summary; summary == nil || summary.Redises.Total < 30 || summary.Redises.Ready != 0 {
		t.Errorf("the summary is %+v", published.Status.Summary)
	}
	for _, item := range published.Status.Attention {
		if item.Reason != flotillav1.ReasonOther {
			t.Errorf("attention says %+v", item)
		}
	}
}
