// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// publish creates the MemberCluster of eu-1 with an attention item that placement must not change.
func (f *fixture) publish() *flotillav1.MemberCluster {
	f.t.Helper()
	published := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: eu1},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: eu1}},
	}
	f.create(f.hub, published)
	f.t.Cleanup(func() { _ = hubServer.Client.Delete(context.Background(), published) })
	before := published.DeepCopy()
	published.Status.Attention = []flotillav1.Attention{{Kind: "Redis", Namespace: "a", Name: "b", Reason: flotillav1.ReasonPending}}
	if err := f.hub.Status().Patch(context.Background(), published, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
	return published
}

// attention lists "<kind> <name> <reason>" of the MemberCluster.
func (f *fixture) attention(published *flotillav1.MemberCluster) []string {
	f.t.Helper()
	if !f.get(f.hub, published) {
		f.t.Fatal("there is no MemberCluster")
	}
	var lines []string
	for _, item := range published.Status.Attention {
		lines = append(lines, item.Kind+" "+item.Name+" "+item.Reason)
		if item.Reason == flotillav1.ReasonOrphaned && item.Since == nil {
			f.t.Error("an orphaned copy does not say since when")
		}
	}
	return lines
}

func TestReconcile_release_is_recorded(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	published := f.publish()
	redis := f.newRedis()
	f.settle(redis)
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.State = clusters.StateUnreachable })
	if err := f.hub.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationRelease: eu1}
	})

	// A crash after the record was written repeats it, which changes nothing.
	if err := f.r.recordOrphan(context.Background(), redis, eu1); err != nil {
		t.Fatal(err)
	}
	f.r.Table = fleet.NewTable()
	f.settle(redis)
	if f.get(f.hub, redis) {
		t.Error("the hub object was not released")
	}
	want := []string{"Redis cache Orphaned", "Redis b Pending"}
	if diff := cmp.Diff(want, f.attention(published)); diff != "" {
		t.Errorf("attention (-want +got):\n%s", diff)
	}
	f.wantNoWrites(redis)
}

func TestReconcile_release_of_what_is_gone_is_not_recorded(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	published := f.publish()
	redis := f.newRedis()
	f.settle(redis)
	if err := f.member.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	if err := f.hub.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.pass(redis, eu1)
	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationRelease: eu1}
	})
	f.settle(redis)
	if diff := cmp.Diff([]string{"Redis b Pending"}, f.attention(published)); diff != "" || f.get(f.hub, redis) {
		t.Errorf("attention (-want +got):\n%s", diff)
	}
}

func TestReconcile_deletion_policy_orphan_leaves_no_orphan(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	published := f.publish()
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Placement.DeletionPolicy = flotillav1.DeletionPolicyOrphan })
	f.settle(redis)
	if err := f.hub.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.settle(redis)
	placed := copyOf(redis)
	if f.get(f.hub, redis) || !f.get(f.member, placed) || fleet.IsOurs(placed, hubID) {
		t.Error("want the member's own object where the copy was")
	}
	if diff := cmp.Diff([]string{"Redis b Pending"}, f.attention(published)); diff != "" {
		t.Errorf("what a person left to the member is not given up (-want +got):\n%s", diff)
	}
}
