// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func (s *story) detachRefused(*testing.T) {
	s.fails([]string{`hub "hub" is not gone`, "kubectl flotilla unregister"}, "--context", "eu-1-admin", "detach", "--yes")
	s.fails([]string{"so it is a hub"}, "--context", "hub", "detach", "--yes")
	s.fails([]string{"--context is missing"}, "detach", "--yes")
	s.fails([]string{"the manager is not gone"}, "--context", "hub", "detach", "--hub", "--yes")
}

func TestDetach_frees_a_member_from_a_hub_that_is_gone(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	ensure(t, us1, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flotillav1.SystemNamespace}})
	ensure(t, us1, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lost"}})
	claim := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.SystemNamespace, Name: flotillav1.ClaimLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("old-hub/instance"), LeaseDurationSeconds: new(int32(180)),
			RenewTime: new(metav1.NewMicroTime(time.Now().Add(-2 * time.Hour))),
		},
	}
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "lost", Name: "cache", Finalizers: []string{flotillav1.FinalizerRedis, "example.com/other"}}}
	leaving := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "lost", Name: "leaving", Finalizers: []string{flotillav1.FinalizerRedis}}}
	pool := &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "lost", Finalizers: []string{flotillav1.FinalizerNodePool}},
		Spec:       flotillav1.NodePoolSpec{NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"pool": "lost"}}},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-lost", Labels: map[string]string{"pool": "lost", "example.com/tier": "front"},
		Annotations: map[string]string{flotillav1.AnnotationNodeRecord: "{}", "example.com/own": "yes"},
	}}
	for _, object := range []client.Object{claim, redis, leaving, pool, node} {
		ensure(t, us1, object)
	}
	t.Cleanup(func() {
		redis.Finalizers = nil
		_ = us1.Client.Update(ctx, redis)
		for _, object := range []client.Object{redis, pool, node} {
			_ = us1.Client.Delete(ctx, object)
		}
	})
	if err := us1.Client.Delete(ctx, leaving); err != nil {
		t.Fatal(err)
	}

	w.fails([]string{"nothing was changed", "answer y"}, "--context", "us-1-admin", "detach")
	if err := us1.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		t.Errorf("without an answer: %v", err)
	}
	w.answers = []string{"y\n"}
	show(t, "detach", "detach --context us-1-admin", w.must("--context", "us-1-admin", "detach"))

	for _, gone := range []client.Object{claim, leaving} {
		if err := us1.Client.Get(ctx, client.ObjectKeyFromObject(gone), gone); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is there (%v)", gone, gone.GetName(), err)
		}
	}
	for _, kept := range []client.Object{redis, pool, node} {
		if err := us1.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept); err != nil {
			t.Fatal(err)
		}
	}
	if len(redis.Finalizers) != 1 || redis.Finalizers[0] != "example.com/other" || len(pool.Finalizers) != 0 {
		t.Errorf("the finalizers are %v and %v", redis.Finalizers, pool.Finalizers)
	}
	if _, recorded := node.Annotations[flotillav1.AnnotationNodeRecord]; recorded || node.Annotations["example.com/own"] != "yes" || node.Labels["example.com/tier"] != "front" {
		t.Errorf("the node has annotations %v and labels %v", node.Annotations, node.Labels)
	}
	if got := w.must("--context", "us-1-admin", "detach"); !strings.Contains(got.out, "Nothing of a hub is left") {
		t.Errorf("a second time it says\n%s", got.out)
	}
}

// letAllGo removes what other tests have left on the hub.
func letAllGo(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	for _, kind := range []fleet.Kind{fleet.Redis, fleet.NodePool} {
		list := kind.NewList()
		if err := hubServer.Client.List(ctx, list); err != nil {
			t.Fatal(err)
		}
		for _, object := range kind.Items(list) {
			object.SetFinalizers(nil)
			if err := hubServer.Client.Update(ctx, object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if err := hubServer.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDetach_lets_objects_of_a_hub_go_whose_manager_is_gone(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	letAllGo(t)
	ensure(t, hubServer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "held"}})
	stays := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "held", Name: "cache", Finalizers: []string{flotillav1.FinalizerPlacement, "example.com/other"}}}
	leaving := &flotillav1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{flotillav1.FinalizerPlacement}},
		Spec:       flotillav1.NodePoolSpec{NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"pool": "held"}}},
	}
	ensure(t, hubServer, stays)
	ensure(t, hubServer, leaving)
	t.Cleanup(func() {
		stays.Finalizers = nil
		_ = hubServer.Client.Update(ctx, stays)
		_ = hubServer.Client.Delete(ctx, stays)
	})
	leaving.Status.PlacedIn = []string{"eu-1", "us-1"}
	if err := hubServer.Client.Status().Update(ctx, leaving); err != nil {
		t.Fatal(err)
	}
	if err := hubServer.Client.Delete(ctx, leaving); err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: flotillav1.SystemNamespace, Name: flotillav1.ManagerLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("manager"), LeaseDurationSeconds: new(int32(60)), RenewTime: new(metav1.NewMicroTime(time.Now().Add(-time.Hour))),
		},
	}
	if err := hubServer.Client.Delete(ctx, lease.DeepCopy()); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	ensure(t, hubServer, lease)
	t.Cleanup(func() { _ = hubServer.Client.Delete(ctx, lease) })

	w.fails([]string{"nothing was changed", "answer y"}, "--context", "hub", "detach", "--hub")
	w.answers = []string{"y\n"}
	show(t, "detach-hub", "detach --hub --context hub", w.must("--context", "hub", "detach", "--hub"))
	if err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(leaving), leaving); !apierrors.IsNotFound(err) {
		t.Errorf("what was being deleted is there (%v)", err)
	}
	if err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(stays), stays); err != nil {
		t.Fatal(err)
	}
	if len(stays.Finalizers) != 1 || stays.Finalizers[0] != "example.com/other" {
		t.Errorf("the finalizers are %v", stays.Finalizers)
	}
	if got := w.must("--context", "hub", "detach", "--hub", "--yes"); !strings.Contains(got.out, "No object of the hub waits") {
		t.Errorf("a second time it says\n%s", got.out)
	}
}
