// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func (f *fixture) delete(object client.Object) {
	f.t.Helper()
	if err := f.hub.Delete(context.Background(), object); err != nil {
		f.t.Fatal(err)
	}
}

func TestReconcile_deletion_removes_the_copies_first(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	f.wantEvents()
	f.delete(copyOf(redis))

	// A pass before the copy is gone keeps the record.
	f.pass(redis, "")
	if !f.get(f.hub, redis) || !slices.Equal(redis.Status.PlacedIn, []string{eu1}) {
		t.Fatalf("the record was given up before the copy was gone: %v", redis.Status.PlacedIn)
	}
	f.settle(redis)
	if f.get(f.member, copyOf(redis)) || f.get(f.hub, redis) {
		t.Error("the deletion did not go through")
	}
	f.wantEvents("Normal Removed eu-1: ")
}

func TestReconcile_an_unreachable_member_holds_the_deletion(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.State = clusters.StateUnreachable })
	f.delete(copyOf(redis))
	f.wantNoWrites(redis)
	if !f.get(f.hub, redis) {
		t.Fatal("the hub object is gone while a copy may be there")
	}
	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationRelease: eu1}
	})
	f.settle(redis)
	if f.get(f.hub, redis) || !f.get(f.member, copyOf(redis)) {
		t.Error("want the hub object released and the copy kept")
	}
	f.wantEvents("Warning Released eu-1: ")
}

func TestReconcile_release_works_once(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.State = clusters.StateAuthFailed })
	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationRelease: eu1}
	})
	f.settle(redis)
	f.get(f.hub, redis)
	if len(redis.Status.PlacedIn) != 0 || redis.Annotations[flotillav1.AnnotationRelease] != "" {
		t.Errorf("placedIn %v, annotations %v", redis.Status.PlacedIn, redis.Annotations)
	}
	f.wantNoWrites(redis)
}

func TestReconcile_a_terminating_kind_releases_everything(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	f.delete(copyOf(redis))
	f.r.HubReader = terminatingCRD{f.hub}

	f.pass(redis, eu1)
	if !f.get(f.member, copyOf(redis)) {
		t.Fatal("a copy was deleted because the kind is being removed from the hub")
	}
	f.settle(redis)
	if f.get(f.hub, redis) || !f.get(f.member, copyOf(redis)) {
		t.Error("want the hub object released and the copy kept")
	}
}

// terminatingCRD reads every CRD as one that is being deleted.
type terminatingCRD struct{ client.Reader }

func (c terminatingCRD) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if err := c.Reader.Get(ctx, key, object, options...); err != nil {
		return err
	}
	if crd, ok := object.(*metav1.PartialObjectMetadata); ok {
		crd.DeletionTimestamp = &metav1.Time{}
	}
	return nil
}

func TestReconcile_doubt_about_the_kind_deletes_nothing(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	f.delete(copyOf(redis))
	f.r.HubReader = noAnswer{}
	for _, clusterName := range []string{"", eu1} {
		if _, err := f.r.Reconcile(context.Background(), requestFor(clusterName, redis)); err == nil {
			t.Errorf("a pass for %q went on although the CRD cannot be read", clusterName)
		}
	}
	if !f.get(f.hub, redis) || !f.get(f.member, copyOf(redis)) {
		t.Error("something was removed on doubt")
	}
}

type noAnswer struct{ client.Reader }

func (noAnswer) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewTimeoutError("no answer", 1)
}

func TestReconcile_leaving(t *testing.T) {
	tests := map[string]struct {
		placement *flotillav1.Placement
		change    func(f *fixture, redis *flotillav1.Redis)
		wantCopy  bool
		wantOurs  bool
	}{
		"only its labels changed": {
			change:   func(f *fixture, _ *flotillav1.Redis) { f.relabel() },
			wantCopy: true, wantOurs: true,
		},
		"its labels changed and a person confirmed": {
			change: func(f *fixture, redis *flotillav1.Redis) {
				f.relabel()
				update(f, f.hub, redis, func(r *flotillav1.Redis) {
					r.Annotations = map[string]string{flotillav1.AnnotationConfirmLeave: eu1}
				})
			},
		},
		"its labels changed and then the hub object": {
			change: func(f *fixture, redis *flotillav1.Redis) {
				f.relabel()
				f.settle(redis)
				update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Replicas = new(int32(1)) })
			},
			wantCopy: true, wantOurs: true,
		},
		"its labels changed and then the choice": {
			change: func(f *fixture, redis *flotillav1.Redis) {
				f.relabel()
				f.settle(redis)
				update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Clusters = []string{"us-1"} })
			},
		},
		"the selector changed": {
			change: func(f *fixture, redis *flotillav1.Redis) {
				update(f, f.hub, redis, func(r *flotillav1.Redis) {
					r.Spec.Placement.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "us"}}
				})
			},
		},
		"the name was taken out": {
			placement: &flotillav1.Placement{Clusters: []string{eu1, "us-1"}},
			change: func(f *fixture, redis *flotillav1.Redis) {
				update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Clusters = []string{"us-1"} })
			},
		},
		"the placement was taken out": {
			change: func(f *fixture, redis *flotillav1.Redis) {
				update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement = nil })
			},
		},
		"the member is drained": {
			change: func(f *fixture, _ *flotillav1.Redis) {
				f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Draining = true })
			},
		},
		"the selector stopped parsing": {
			change: func(f *fixture, redis *flotillav1.Redis) {
				update(f, f.hub, redis, func(r *flotillav1.Redis) {
					r.Spec.Placement.ClusterSelector.MatchLabels = map[string]string{"region": "not a value"}
				})
			},
			wantCopy: true, wantOurs: true,
		},
		"orphaned by policy": {
			placement: &flotillav1.Placement{All: true, DeletionPolicy: flotillav1.DeletionPolicyOrphan},
			change:    func(f *fixture, redis *flotillav1.Redis) { f.delete(copyOf(redis)) },
			wantCopy:  true,
		},
		"orphaned by a policy that went with the placement": {
			placement: &flotillav1.Placement{All: true, DeletionPolicy: flotillav1.DeletionPolicyOrphan},
			change: func(f *fixture, redis *flotillav1.Redis) {
				update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement = nil })
			},
			wantCopy: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, fleet.Redis)
			redis := f.newRedis(func(r *flotillav1.Redis) {
				if tc.placement != nil {
					r.Spec.Placement = tc.placement
				}
			})
			f.settle(redis)
			tc.change(f, redis)
			f.settle(redis)
			placed := copyOf(redis)
			if got := f.get(f.member, placed); got != tc.wantCopy {
				t.Errorf("there is a copy: %v, want %v", got, tc.wantCopy)
			}
			if got := fleet.IsOurs(placed, hubID); got != tc.wantOurs {
				t.Errorf("it is ours: %v, want %v", got, tc.wantOurs)
			}
			if f.get(f.hub, redis) {
				if recorded := slices.Contains(redis.Status.PlacedIn, eu1); recorded != tc.wantOurs {
					t.Errorf("placedIn is %v", redis.Status.PlacedIn)
				}
				if redis.Annotations[flotillav1.AnnotationConfirmLeave] != "" {
					t.Error("the confirmation is still there")
				}
			}
			f.wantNoWrites(redis)
		})
	}
}

func (f *fixture) relabel() {
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "us"} })
}

func TestReconcile_a_registration_that_was_not_read_yet_is_not_offboarded(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	published := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: eu1},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: eu1}},
	}
	f.create(f.hub, published)
	f.directory.Remove(eu1)
	f.delete(copyOf(redis))
	f.wantNoWrites(redis)
	if !f.get(f.hub, redis) || len(redis.Status.PlacedIn) != 1 {
		t.Fatal("a member that may come back was forgotten")
	}
	f.delete(published)
	f.settle(redis)
	if f.get(f.hub, redis) || !f.get(f.member, copyOf(redis)) {
		t.Error("want the hub object gone and the copy kept in the offboarded member")
	}
}

func TestReconcile_a_member_that_cannot_be_written_to_is_not_recorded(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.State = clusters.StateUnreachable })
	redis := f.newRedis()
	f.settle(redis)
	if f.get(f.hub, redis); len(redis.Status.PlacedIn) != 0 {
		t.Errorf("placedIn is %v", redis.Status.PlacedIn)
	}
	f.delete(copyOf(redis))
	f.settle(redis)
	if f.get(f.hub, redis) {
		t.Error("a member that never had a copy holds up the deletion")
	}
}

func TestReconcile_only_copies_are_waited_for(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	f.relabel()
	redis := f.newRedis()
	expect := func(when string, want ...string) {
		t.Helper()
		f.settle(redis)
		f.get(f.hub, redis)
		if !slices.Equal(redis.Finalizers, want) || (len(redis.Status.PlacedIn) > 0) != (len(want) > 0) {
			t.Errorf("%s: finalizers %v, placedIn %v", when, redis.Finalizers, redis.Status.PlacedIn)
		}
		f.wantNoWrites(redis)
	}
	expect("nobody is chosen")
	f.directory.Change(eu1, func(s *clusters.Snapshot) { s.Labels = map[string]string{"region": "eu"} })
	expect("a member is chosen", flotillav1.FinalizerPlacement)
	f.directory.Remove(eu1)
	expect("the last member is offboarded")
	if !f.get(f.member, copyOf(redis)) {
		t.Error("the copy did not stay")
	}
}

func TestPlanHub_what_was_seen_gone_counts_only_for_its_generation(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	redis := f.newRedis()
	f.settle(redis)
	key := fleet.ObjectKey{Kind: "Redis", Object: client.ObjectKeyFromObject(redis)}
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement = nil })
	f.r.Table.Set(key, eu1, fleet.Outcome{Gone: true, Generation: redis.Generation - 1})
	f.pass(redis, "")
	if f.get(f.hub, redis); !slices.Equal(redis.Status.PlacedIn, []string{eu1}) {
		t.Error("an observation of an earlier generation removed the name")
	}
}

func TestNamespaceAllowed(t *testing.T) {
	tests := map[string]struct {
		allowed []string
		want    bool
	}{
		"":                {want: true},
		"shop":            {want: true},
		"kube-system":     {},
		"flotilla-system": {},
		"default":         {},
		"kube-apps":       {allowed: []string{"kube-a*"}, want: true},
	}
	for namespace, tc := range tests {
		if got := namespaceAllowed(namespace, tc.allowed); got != tc.want {
			t.Errorf("namespace %q allowed: %v", namespace, got)
		}
	}
}

func TestRefused(t *testing.T) {
	resource := schema.GroupResource{Resource: "redises"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"invalid":      {apierrors.NewInvalid(schema.GroupKind{Kind: "Redis"}, "a", nil), true},
		"forbidden":    {apierrors.NewForbidden(resource, "a", nil), true},
		"conflict":     {apierrors.NewConflict(resource, "a", nil), false},
		"unauthorized": {apierrors.NewUnauthorized(""), false},
		"throttled":    {apierrors.NewTooManyRequests("", 1), false},
		"unavailable":  {apierrors.NewServiceUnavailable(""), false},
		"no answer":    {context.DeadlineExceeded, false},
	}
	got, want := map[string]bool{}, map[string]bool{}
	for name, tc := range tests {
		got[name], want[name] = fleet.Refused(tc.err), tc.want
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

func TestHub_places_in_as_many_members_as_the_record_has_room_for(t *testing.T) {
	f := newFixture(t, fleet.Redis)
	f.directory.Replace()
	var names []string
	for i := range flotillav1.MaxPlacedIn + 1 {
		names = append(names, fmt.Sprintf("a-member-with-a-name-of-42-characters%05d", i))
		f.directory.Set(snapshotOf(names[i]))
	}
	first, last := names[0], names[len(names)-1]
	redis := f.newRedis(func(r *flotillav1.Redis) { r.Spec.Placement = &flotillav1.Placement{All: true} })
	key := fleet.ObjectKey{Kind: "Redis", Object: client.ObjectKeyFromObject(redis)}
	for range 2 {
		f.pass(redis, "")
		f.get(f.hub, redis)
		if !slices.Equal(redis.Status.PlacedIn, names[:flotillav1.MaxPlacedIn]) {
			t.Fatalf("the record has %d names", len(redis.Status.PlacedIn))
		}
		if got := f.r.Table.Get(key, last).Reason; got != flotillav1.ReasonTooManyClusters {
			t.Errorf("the outcome of the last one is %q", got)
		}
	}
	f.wantEvents("Warning TooManyClusters " + last + ": ")

	// All of them depart: the record still fits into one object.
	update(f, f.hub, redis, func(r *flotillav1.Redis) {
		r.Spec.Placement = &flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "none"}}}
	})
	f.pass(redis, "")
	if f.get(f.hub, redis); len(redis.Status.Departing) != flotillav1.MaxPlacedIn {
		t.Errorf("%d members are recorded as departing", len(redis.Status.Departing))
	}
	update(f, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement = &flotillav1.Placement{All: true} })
	f.directory.Remove(multicluster.ClusterName(first))
	f.pass(redis, "")
	if f.get(f.hub, redis); !slices.Equal(redis.Status.PlacedIn, names[1:]) {
		t.Error("the last one does not take the place of the one that has left")
	}
}
