// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
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
