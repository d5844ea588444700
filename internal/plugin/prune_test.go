// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// prune finds two copies that a hub has made which knows nothing of them any more; one of them is deleted.
func (s *story) prune(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"old", "older"} {
		key := client.ObjectKey{Namespace: "shop", Name: name}
		ensure(t, eu1, &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Annotations: map[string]string{flotillav1.AnnotationHub: hubID, flotillav1.AnnotationPlacedFrom: fleet.PlacedFrom(key)},
		}})
	}
	there := func(name string) bool {
		err := eu1.Client.Get(ctx, client.ObjectKey{Namespace: "shop", Name: name}, &flotillav1.Redis{})
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil
	}
	if got := s.must("prune", "--dry-run"); !strings.Contains(got.out, "redis/shop/old ") || !strings.Contains(got.out, "redis/shop/older ") || strings.Contains(got.out, "cache") {
		t.Errorf("it lists\n%s", got.out)
	}
	if found := read[itemList[orphanItem]](t, s.must("prune", "--dry-run", "-o", "json")).Items; len(found) != 2 || found[0] != (orphanItem{Cluster: "eu-1", Object: "redis/shop/old"}) {
		t.Errorf("a script reads %+v", found)
	}
	s.fails([]string{"-o json does not go with deleting", "add --dry-run"}, "prune", "-o", "json")
	s.must("prune") // Nobody answers.
	if !there("old") || !there("older") {
		t.Error("a copy was deleted without an answer")
	}
	s.answers = []string{"y\n", "n\n"}
	show(t, "prune", "prune -c eu-1", s.must("prune", "-c", "eu-1"))
	if there("old") || !there("older") {
		t.Errorf("of the copies, the first is there: %t, and the second: %t", there("old"), there("older"))
	}
	if got := s.must("prune", "-c", "us-1"); !strings.Contains(got.out, "No orphaned copies in the 1 member") {
		t.Errorf("it lists\n%s", got.out)
	}
	s.fails([]string{`no member is called "eu-9"`}, "prune", "-c", "eu-9")
}

func TestOrphan_delete(t *testing.T) {
	ctx := context.Background()
	member := &site.Site{Client: eu1.Client}
	for _, tt := range []struct {
		name   string
		change func(*flotillav1.Redis) error
		kept   bool
	}{
		{name: "unchanged", change: func(*flotillav1.Redis) error { return nil }},
		{name: "another-status", change: func(redis *flotillav1.Redis) error {
			redis.Status.ReadyReplicas = 3
			return eu1.Client.Status().Update(ctx, redis)
		}},
		{name: "another-finalizer", change: func(redis *flotillav1.Redis) error {
			redis.Finalizers = nil
			return eu1.Client.Update(ctx, redis)
		}},
		{name: "another-spec", kept: true, change: func(redis *flotillav1.Redis) error {
			redis.Spec.Storage.RetentionPolicy = flotillav1.RedisRetentionDelete
			return eu1.Client.Update(ctx, redis)
		}},
		{name: "another-mark", kept: true, change: func(redis *flotillav1.Redis) error {
			delete(redis.Annotations, flotillav1.AnnotationHub)
			return eu1.Client.Update(ctx, redis)
		}},
		{name: "made-again", kept: true, change: func(redis *flotillav1.Redis) error {
			again := redis.DeepCopy()
			again.ResourceVersion, again.UID, redis.Finalizers, again.Finalizers = "", "", nil, nil
			return errors.Join(eu1.Client.Update(ctx, redis), eu1.Client.Delete(ctx, redis), eu1.Client.Create(ctx, again))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceDefault, Name: tt.name, Finalizers: []string{"example.com/kept"},
				Annotations: map[string]string{flotillav1.AnnotationHub: hubID},
			}}
			if err := eu1.Client.Create(ctx, redis); err != nil {
				t.Fatal(err)
			}
			key := client.ObjectKeyFromObject(redis)
			t.Cleanup(func() {
				left := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				err := errors.Join(client.IgnoreNotFound(eu1.Client.Delete(ctx, left)),
					client.IgnoreNotFound(eu1.Client.Patch(ctx, left, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
				if err != nil {
					t.Error(err)
				}
			})
			shown := orphan{from: member, of: target{fleet.Redis, key}, object: redis.DeepCopy()}
			if err := tt.change(redis); err != nil {
				t.Fatal(err)
			}
			if err := shown.delete(ctx); apierrors.IsConflict(err) != tt.kept || err != nil && !tt.kept {
				t.Errorf("deleting it: %v", err)
			}
			now := &flotillav1.Redis{}
			err := eu1.Client.Get(ctx, key, now)
			if client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			if kept := err == nil && now.DeletionTimestamp == nil; kept != tt.kept {
				t.Errorf("it is there, and not being deleted: %t", kept)
			}
		})
	}
}
