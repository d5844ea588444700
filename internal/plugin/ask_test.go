// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// knownMember makes a MemberCluster as a manager publishes it.
func knownMember(t *testing.T, name string, uid types.UID) {
	t.Helper()
	member := &flotillav1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: flotillav1.RegistrationNamespace, Name: name}},
	}
	// The manager of another test may have ended before it removed one of that name.
	if err := client.IgnoreNotFound(hubServer.Client.Delete(context.Background(), member)); err != nil {
		t.Fatal(err)
	}
	if err := hubServer.Client.Create(context.Background(), member); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hubServer.Client.Delete(context.Background(), member) })
	member.Status.UID = string(uid)
	if err := hubServer.Client.Status().Update(context.Background(), member); err != nil {
		t.Fatal(err)
	}
}

func TestRequests_are_made_on_the_MemberCluster(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	letAllGo(t)
	t.Cleanup(func() { letAllGo(t) })
	knownMember(t, "eu-1", "")
	knownMember(t, "us-1", "")
	ensure(t, hubServer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for name, policy := range map[string]string{"cache": "", "kept": flotillav1.DeletionPolicyOrphan} {
		redis := &flotillav1.Redis{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       flotillav1.RedisSpec{Placement: &flotillav1.Placement{Clusters: []string{"eu-1"}, DeletionPolicy: policy}},
		}
		if err := hubServer.Client.Create(ctx, redis); err != nil {
			t.Fatal(err)
		}
		says(t, redis, func(s *flotillav1.FleetStatus) { s.PlacedIn = []string{"eu-1"} })
	}
	annotations := func(name string) map[string]string { return w.member(name).Annotations }

	show(t, "pause", "pause us-1", w.must("pause", "us-1"))
	if annotations("us-1")[flotillav1.AnnotationPaused] != "true" {
		t.Errorf("the annotations are %v", annotations("us-1"))
	}
	// The registration asks for it as well, which only its owner can change.
	registration := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: flotillav1.RegistrationNamespace, Name: "us-1", Annotations: map[string]string{flotillav1.AnnotationPaused: "true"},
	}}
	ensure(t, hubServer, registration)
	t.Cleanup(func() { _ = hubServer.Client.Delete(ctx, registration) })
	if got := w.must("resume", "us-1"); !strings.Contains(got.err, "Secret flotilla-clusters/us-1, asks for it too") {
		t.Errorf("it says\n%s", got.err)
	}
	if _, paused := annotations("us-1")[flotillav1.AnnotationPaused]; paused {
		t.Errorf("the annotations are %v", annotations("us-1"))
	}

	w.answers = []string{"n\n"}
	w.fails([]string{"nothing was changed", "answer y"}, "drain", "eu-1")
	if annotations("eu-1")[flotillav1.AnnotationDrain] != "" {
		t.Error("it is drained without an answer")
	}
	w.answers = []string{"y\n"}
	show(t, "drain", "drain eu-1", w.must("drain", "eu-1"))
	if annotations("eu-1")[flotillav1.AnnotationDrain] != "true" {
		t.Errorf("the annotations are %v", annotations("eu-1"))
	}
	w.must("undrain", "eu-1")
	if annotations("eu-1")[flotillav1.AnnotationDrain] != "" {
		t.Errorf("the annotations are %v", annotations("eu-1"))
	}
	w.fails([]string{`no member is called "eu-9"`}, "pause", "eu-9", "us-1")
	if annotations("us-1")[flotillav1.AnnotationPaused] != "" {
		t.Error("a part of what was asked for was done")
	}
}

// writerOf returns the field manager of an annotation.
func writerOf(object client.Object, annotation string) string {
	for _, entry := range object.GetManagedFields() {
		if entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+annotation+`"`) {
			return entry.Manager
		}
	}
	return ""
}

// TestPerson_is_no_manager_that_flux_undoes has every command that annotates a hub object do so.
func TestPerson_is_no_manager_that_flux_undoes(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	letAllGo(t)
	t.Cleanup(func() { letAllGo(t) })
	ensure(t, hubServer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	redis := &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache"},
		Spec:       flotillav1.RedisSpec{Placement: &flotillav1.Placement{Clusters: []string{"eu-1"}}},
	}
	if err := hubServer.Client.Create(ctx, redis); err != nil {
		t.Fatal(err)
	}
	says(t, redis, func(s *flotillav1.FleetStatus) {
		s.PlacedIn = []string{"eu-1", "eu-2"}
		s.Departing = []flotillav1.Departure{{Name: "eu-2", Cause: flotillav1.DepartureLabelsChanged}}
		s.Recreated = []flotillav1.Recreation{{Name: "eu-1", Time: metav1.Now()}}
	}, metav1.Condition{Type: flotillav1.ConditionRemovalHeld, Status: metav1.ConditionTrue, Reason: flotillav1.ReasonBudgetExceeded})
	of := []string{"redis/cache", "-n", "shop", "--yes"}
	for annotation, args := range map[string][]string{
		flotillav1.AnnotationConfirmRemoval:   append([]string{"confirm", "removal"}, of...),
		flotillav1.AnnotationConfirmLeave:     append([]string{"confirm", "leave"}, of...),
		flotillav1.AnnotationConfirmRecreated: append([]string{"confirm", "recreated"}, of...),
		flotillav1.AnnotationRelease:          append([]string{"release", "-c", "eu-1"}, of...),
		flotillav1.AnnotationPromote:          {"rollout", "promote", "redis/cache", "-n", "shop"},
	} {
		w.must(args...)
		if err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(redis), redis); err != nil {
			t.Fatal(err)
		}
		if writer := writerOf(redis, annotation); writer != "flotilla-cli" {
			t.Errorf("%s is written by %q", annotation, writer)
		}
	}
	w.fails([]string{`has no copy in "us-1"`, "eu-1, eu-2"}, "release", "redis/cache", "-n", "shop", "-c", "us-1")
	w.fails([]string{"not clear which copies"}, "release", "redis/cache", "-n", "shop")
}
