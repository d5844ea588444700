// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// revisions returns the revisions of a Redis, the newest first.
func (f *fixture) revisions(redis *flotillav1.Redis) []appsv1.ControllerRevision {
	f.t.Helper()
	var list appsv1.ControllerRevisionList
	if err := f.hub.List(context.Background(), &list, client.InNamespace(fleet.RevisionNamespace(redis)), client.MatchingLabels(fleet.RevisionLabels(redis))); err != nil {
		f.t.Fatal(err)
	}
	fleet.SortRevisions(list.Items)
	return list.Items
}

// wantImages expects revisions with these images, the newest first, and that the status names the newest one.
func (f *manyMembers) wantImages(redis *flotillav1.Redis, images ...string) {
	f.t.Helper()
	var got []string
	revisions := f.revisions(redis)
	for i := range revisions {
		spec, err := fleet.RevisionSpec(&revisions[i])
		if err != nil {
			f.t.Fatal(err)
		}
		got = append(got, fmt.Sprint(spec["image"]))
	}
	if diff := cmp.Diff(images, got); diff != "" {
		f.t.Fatalf("revisions (-want +got):\n%s", diff)
	}
	if f.get(f.hub, redis); redis.Status.Revision != revisions[0].Name {
		f.t.Errorf("status.revision is %q, the newest is %q", redis.Status.Revision, revisions[0].Name)
	}
}

func TestHistory_keeps_the_last_specs(t *testing.T) {
	f := newManyMembers(t, 1)
	redis := f.placed(setImage(good))
	f.wantImages(redis, good)
	f.wantNothing(redis)
	f.restart()
	f.wantNothing(redis)

	revision := f.revisions(redis)[0]
	owner := metav1.GetControllerOf(&revision)
	if owner == nil || owner.UID != redis.UID || owner.Kind != fleet.Redis.Name || revision.Revision != 1 {
		t.Errorf("the first revision is %d of %+v", revision.Revision, owner)
	}

	// Neither the choice of clusters nor how changes spread is part of it.
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) {
		r.Spec.Placement.Clusters, r.Spec.Placement.Rollout = []string{"m-1"}, &flotillav1.Rollout{Paused: true}
	})
	f.run(redis)
	f.wantImages(redis, good)
	update(f.fixture, f.hub, redis, func(r *flotillav1.Redis) { r.Spec.Placement.Rollout = nil })

	// Going back gives the spec a new number.
	for _, image := range []string{correct, good} {
		update(f.fixture, f.hub, redis, setImage(image))
		f.run(redis)
		f.become(redis, metav1.ConditionTrue, "m-1")
	}
	f.wantImages(redis, good, correct)
	if revisions := f.revisions(redis); revisions[0].Revision != redis.Generation || revisions[1].Revision != redis.Generation-1 {
		t.Errorf("the revisions of generation %d have the numbers %d and %d", redis.Generation, revisions[0].Revision, revisions[1].Revision)
	}

	var images []string
	for i := range 12 {
		image := fmt.Sprintf("registry.example.com/redis:1.%d", i)
		update(f.fixture, f.hub, redis, setImage(image))
		f.run(redis)
		f.become(redis, metav1.ConditionTrue, "m-1")
		images = append(images, image)
	}
	slices.Reverse(images)
	f.run(redis)
	f.wantImages(redis, images[:fleet.MaxRevisions]...)
	f.wantNothing(redis)
}

func TestHistory_a_hub_that_refuses_revisions_delays_no_change(t *testing.T) {
	f := newManyMembers(t, 1)
	redis, tries := f.placed(setImage(good)), 0
	hub, err := client.NewWithWatch(hubServer.Config, client.Options{Scheme: f.hub.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	refusing := interceptor.NewClient(hub, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, isRevision := object.(*appsv1.ControllerRevision); isRevision {
				tries++
				return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}, object.GetName(), nil)
			}
			return c.Create(ctx, object, options...)
		},
	})
	f.r.Hub = refusing
	update(f.fixture, f.hub, redis, setImage(correct))
	f.run(redis)
	f.wantImage(redis, correct, "m-1")
	if tries != 1 {
		t.Errorf("it was tried %d times", tries)
	}
	f.r.Hub = f.hub
	f.clock.Step(refusedDelay + time.Second)
	f.run(redis)
	f.wantImages(redis, correct, good)
}
