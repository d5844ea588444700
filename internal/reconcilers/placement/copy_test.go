// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func selectEU() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}
}

func TestReconcile_places_a_copy(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis(func(r *flotillav1.Redis) {
		r.Labels = map[string]string{"example.com/team": "shop", "other": "label"}
		r.Spec.Placement.Overrides = []flotillav1.Override{{Clusters: []string{eu1}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"replicas":5}`)}, LeaveToMember: []string{"podAntiAffinity"}}}
	})
	f.r.Options.CopyMetadata = []string{"example.com/"}

	f.pass(redis, eu1)
	if f.get(f.member, copyOf(redis)) {
		t.Fatal("a copy was made before the record names the cluster")
	}
	f.settle(redis)

	f.get(f.hub, redis)
	if diff := cmp.Diff([]string{eu1}, redis.Status.PlacedIn); diff != "" {
		t.Errorf("placedIn (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{flotillav1.FinalizerPlacement}, redis.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	placed := copyOf(redis)
	if !f.get(f.member, placed) {
		t.Fatal("there is no copy")
	}
	if placed.Spec.Placement != nil || *placed.Spec.Replicas != 5 || placed.Spec.PodAntiAffinity != "Preferred" || !fleet.IsOurs(placed, hubID) {
		t.Errorf("the copy is %+v", placed)
	}
	if diff := cmp.Diff(map[string]string{"example.com/team": "shop"}, placed.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	f.wantEvents()
	f.wantOutcome(redis, "")
	f.wantNoWrites(redis)
}

func TestReconcile_changes_the_copy(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	placed := copyOf(redis)
	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.PriorityClassName = "members-own" })
	uid := placed.UID
	f.wantEvents()
	f.wantNoWrites(redis)

	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) })
	f.settle(redis)
	f.get(f.member, placed)
	if *placed.Spec.Replicas != 2 || placed.Spec.PriorityClassName != "members-own" || placed.UID != uid {
		t.Errorf("want the hub's change and the member's own field, got %+v", placed.Spec)
	}
	f.wantEvents("Normal Placed eu-1: Placed generation 2")

	update(f, f.member, placed, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(7)) })
	f.settle(redis)
	f.get(f.member, placed)
	if *placed.Spec.Replicas != 2 {
		t.Errorf("drift stays: %d replicas", *placed.Spec.Replicas)
	}
	f.wantEvents("Normal DriftReverted eu-1: ")

	// A field that the hub removes is removed from the copy.
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Paused = true })
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Paused = false })
	f.settle(redis)
	f.get(f.member, placed)
	if placed.Spec.Paused {
		t.Error("a field that the hub has dropped is still in the copy")
	}

	version := placed.ResourceVersion
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Annotations = map[string]string{"example.com/note": "hello"} })
	f.wantNoWrites(redis)
	if f.get(f.member, placed); placed.ResourceVersion != version {
		t.Error("a change of metadata on the hub was written to the member")
	}
}

func TestReconcile_makes_a_deleted_copy_again(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	if err := f.member.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.settle(redis)
	if !f.get(f.member, copyOf(redis)) {
		t.Error("the copy was not made again")
	}
}

func TestReconcile_foreign_object(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.create(f.member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: redis.Namespace}})
	own := copyOf(redis)
	own.Spec.Replicas = new(int32(1))
	f.create(f.member, own)
	f.settle(redis)
	f.wantOutcome(redis, flotillav1.ReasonNameConflict)
	f.wantEvents("Warning NameConflict eu-1: ")
	f.wantNoWrites(redis)

	// Consent of one side is not enough.
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.ConflictPolicy = flotillav1.ConflictPolicyAdopt })
	f.settle(redis)
	f.get(f.member, own)
	f.wantOutcome(redis, flotillav1.ReasonNameConflict)
	if *own.Spec.Replicas != 1 || fleet.IsOurs(own, hubID) {
		t.Fatal("an object was taken without consent")
	}
	uid := own.UID
	update(f, f.member, own, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationAdoptBy: hubID}
	})
	f.settle(redis)
	f.get(f.member, own)
	f.wantOutcome(redis, "")
	if *own.Spec.Replicas != 3 || !fleet.IsOurs(own, hubID) || own.UID != uid {
		t.Errorf("the object was not adopted: %+v", own)
	}
	f.wantNoWrites(redis)
}

func TestReconcile_deletion_leaves_a_foreign_object(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.create(f.member, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: redis.Namespace}})
	f.create(f.member, copyOf(redis))
	f.settle(redis)
	if err := f.hub.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.settle(redis)
	if f.get(f.hub, redis) || !f.get(f.member, copyOf(redis)) {
		t.Error("want the hub object gone and the member's own object untouched")
	}
}

func TestReconcile_takes_up_copies_after_the_hub_was_rebuilt(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	placed := copyOf(redis)
	f.get(f.member, placed)
	uid := placed.UID

	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Finalizers = nil })
	if err := f.hub.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	f.settle(redis)
	again := copyOf(redis)
	again.Spec = redis.Spec
	f.create(f.hub, again)
	f.settle(again)
	f.get(f.member, placed)
	if placed.UID != uid || placed.Annotations[flotillav1.AnnotationHubUID] != string(again.UID) {
		t.Errorf("the copy was not taken up: uid %s, annotations %v", placed.UID, placed.Annotations)
	}
	f.wantNoWrites(again)
}

func TestReconcile_refusals(t *testing.T) {
	override := func(document string) func(*flotillav1.Redis) {
		return func(r *flotillav1.Redis) {
			r.Spec.Placement.Overrides = []flotillav1.Override{{Clusters: []string{eu1}, Patch: &apiextensionsv1.JSON{Raw: []byte(document)}}}
		}
	}
	tests := map[string]struct {
		change     func(*flotillav1.Redis)
		options    func(*Options)
		wantReason string
	}{
		"unknown field in an override":             {override(`{"replica":5}`), nil, flotillav1.ReasonOverrideInvalid},
		"placement in an override":                 {override(`{"placement":{"all":true}}`), nil, flotillav1.ReasonOverrideInvalid},
		"a value that the member's schema refuses": {override(`{"replicas":500}`), nil, flotillav1.ReasonApplyFailed},
		"system namespace":                         {func(r *flotillav1.Redis) { r.Namespace, r.Name = "default", r.Namespace }, nil, flotillav1.ReasonNamespaceNotAllowed},
		"system namespace that is allowed":         {func(r *flotillav1.Redis) { r.Namespace, r.Name = "default", r.Namespace }, func(o *Options) { o.AllowedNamespaces = []string{"defa*"} }, ""},
		"namespaces are not created":               {func(*flotillav1.Redis) {}, func(o *Options) { o.CreateNamespaces = false }, flotillav1.ReasonNamespaceMissing},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fleet.Redis)
			if tc.options != nil {
				tc.options(&f.r.Options)
			}
			redis := f.newRedis(tc.change)
			f.settle(redis)
			f.wantOutcome(redis, tc.wantReason)
			if placed := f.get(f.member, copyOf(redis)); placed != (tc.wantReason == "") {
				t.Errorf("there is a copy: %v", placed)
			}
			if tc.wantReason != "" {
				f.wantEvents("Warning " + tc.wantReason + " eu-1: ")
			}
		})
	}
}

func TestReconcile_a_refused_change_keeps_the_copy(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Spec.Placement.Overrides = []flotillav1.Override{{Clusters: []string{eu1}, Patch: &apiextensionsv1.JSON{Raw: []byte(`{"nonsense":1}`)}}}
	})
	f.settle(redis)
	f.wantOutcome(redis, flotillav1.ReasonOverrideInvalid)
	if !f.get(f.member, copyOf(redis)) {
		t.Error("bad input took the copy away")
	}
}

func TestReconcile_node_pool(t *testing.T) {
	f := newFixture(t, fleet.NodePool)
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: flotillav1.NodePoolSpec{
		Placement: &flotillav1.Placement{Clusters: []string{eu1, "not-registered"}},
		Labels:    map[string]flotillav1.LabelValue{"example.com/team": "ml"},
		Taints:    []flotillav1.NodePoolTaint{{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}},
	}}
	f.create(f.hub, pool)
	f.settle(pool)
	f.get(f.hub, pool)
	if diff := cmp.Diff([]string{eu1}, pool.Status.PlacedIn); diff != "" {
		t.Errorf("a name that is not registered must not be recorded (-want +got):\n%s", diff)
	}
	placed := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	if !f.get(f.member, placed) {
		t.Fatal("there is no copy")
	}
	update(f, f.member, placed, func(p *flotillav1.NodePool) {
		p.Spec.Taints = append(p.Spec.Taints, flotillav1.NodePoolTaint{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule})
	})
	f.wantNoWrites(pool)
	update(f, f.member, placed, func(p *flotillav1.NodePool) { p.Spec.Taints = p.Spec.Taints[1:] })
	f.settle(pool)
	f.get(f.member, placed)
	if len(placed.Spec.Taints) != 2 {
		t.Errorf("want the hub's taint back beside the member's own, got %v", placed.Spec.Taints)
	}
	if err := f.hub.Delete(context.Background(), &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	f.settle(pool)
	if f.get(f.hub, pool) || f.get(f.member, placed) {
		t.Error("the deletion did not go through")
	}
}

func TestReconcile_a_paused_member_is_not_written_to(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Paused = true })
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(1)) })
	// The hub keeps the new spec as a revision.
	f.pass(redis, "")
	f.wantNoWrites(redis)
	placed := copyOf(redis)
	if f.get(f.member, placed); *placed.Spec.Replicas != 3 {
		t.Error("a paused member was written to")
	}
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Paused = false })
	f.settle(redis)
	if f.get(f.member, placed); *placed.Spec.Replicas != 1 {
		t.Error("the change did not arrive after the pause")
	}
}

// staleCache shows the copy as it was some time ago.
type staleCache struct {
	uncached
	copy *flotillav1.Redis
}

func (s staleCache) GetClient() client.Client { return staleReader{s.client, s.copy} }

type staleReader struct {
	client.Client
	copy *flotillav1.Redis
}

func (s staleReader) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	s.copy.DeepCopyInto(object.(*flotillav1.Redis))
	return nil
}

func TestReconcile_a_stale_cache_overwrites_no_foreign_object(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	stale := copyOf(redis)
	f.get(f.member, stale)
	if err := f.member.Delete(context.Background(), copyOf(redis)); err != nil {
		t.Fatal(err)
	}
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(2)) })
	f.directory.Engage(eu1, staleCache{uncached{client: f.member}, stale})
	f.pass(redis, eu1)
	f.pass(redis, "")
	if result := f.pass(redis, eu1); result.RequeueAfter != conflictDelay || f.get(f.member, copyOf(redis)) {
		t.Errorf("nothing is there: want a silent retry, got %+v", result)
	}
	own := copyOf(redis)
	own.Spec.Replicas = new(int32(9))
	f.create(f.member, own)
	if result := f.pass(redis, eu1); result.RequeueAfter != conflictDelay {
		t.Errorf("another object is there: want a silent retry, got %+v", result)
	}
	f.wantEvents()
	if f.get(f.member, own); *own.Spec.Replicas != 9 || fleet.IsOurs(own, hubID) {
		t.Errorf("a foreign object was overwritten: %+v", own)
	}
}
