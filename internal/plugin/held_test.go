// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// says makes the hub object of a test say something, as the manager would.
func says(t *testing.T, object fleet.Object, change func(*flotillav1.FleetStatus), conditions ...metav1.Condition) {
	t.Helper()
	ctx := context.Background()
	change(object.GetFleetStatus())
	for _, c := range conditions {
		c.ObservedGeneration, c.LastTransitionTime = object.GetGeneration(), metav1.Now()
		*object.GetConditions() = append(*object.GetConditions(), c)
	}
	if err := hubServer.Client.Status().Update(ctx, object); err != nil {
		t.Fatal(err)
	}
}

// TestHeld needs no manager: a person acts on what objects say.
func TestHeld_is_listed_and_confirmed_for_many_objects_at_once(t *testing.T) {
	w, ctx := newWorld(t), context.Background()
	letAllGo(t)
	t.Cleanup(func() { letAllGo(t) })
	for _, namespace := range []string{"shop", "other"} {
		ensure(t, hubServer, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	if got := w.must("held").out; !strings.Contains(got, "Nothing waits for a person.") {
		t.Errorf("of a fleet that is well it says\n%s", got)
	}
	if got := w.must("held", "-o", "json").out; strings.Join(strings.Fields(got), "") != `{"items":[]}` {
		t.Errorf("of a fleet that is well a script reads\n%s", got)
	}
	redis := func(namespace, name string) *flotillav1.Redis {
		object := &flotillav1.Redis{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"team": "shop"}},
			Spec:       flotillav1.RedisSpec{Placement: &flotillav1.Placement{Clusters: []string{"eu-1"}}},
		}
		if err := hubServer.Client.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	beyond := metav1.Condition{Type: flotillav1.ConditionRemovalHeld, Status: metav1.ConditionTrue, Reason: flotillav1.ReasonBudgetExceeded}
	removing := func(object *flotillav1.Redis) *flotillav1.Redis {
		says(t, object, func(*flotillav1.FleetStatus) {
			object.Status.Clusters = []flotillav1.RedisClusterStatus{{ClusterStatus: flotillav1.ClusterStatus{
				Name: "us-1", Ready: metav1.ConditionFalse, Reason: flotillav1.ReasonRemovalHeld,
			}}}
		}, beyond)
		return object
	}
	cache, session, elsewhere := removing(redis("shop", "cache")), removing(redis("shop", "session")), removing(redis("other", "cache"))
	leaving := redis("shop", "leaving")
	says(t, leaving, func(s *flotillav1.FleetStatus) {
		s.PlacedIn = []string{"eu-1", "eu-2"}
		s.Departing = []flotillav1.Departure{{Name: "eu-2", Cause: flotillav1.DepartureLabelsChanged}}
		s.Recreated = []flotillav1.Recreation{{Name: "eu-1", Time: metav1.Now()}}
	}, metav1.Condition{Type: flotillav1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: flotillav1.ReasonRolloutHalted})
	show(t, "held", "held", w.must("held"))
	list := read[itemList[heldItem]](t, w.must("held", "-o", "yaml"))
	found := slices.IndexFunc(list.Items, func(item heldItem) bool { return item.Object == "redis/other/cache" })
	if found < 0 || list.Items[found].Held != holdRemoval || !slices.Equal(list.Items[found].Clusters, []string{"us-1"}) || list.Items[found].Since == nil || list.Items[found].Next == "" {
		t.Errorf("a script reads %+v", list.Items)
	}

	if names := strings.Fields(w.must("held", "-o", "name").out); !slices.Contains(names, "redis/other/cache") {
		t.Errorf("the names are %v", names)
	}

	annotation := func(object client.Object, key string) string {
		t.Helper()
		if err := hubServer.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		return object.GetAnnotations()[key]
	}
	w.answers = []string{"n\n"}
	w.fails([]string{"nothing was changed", "answer y"}, "confirm", "removal", "-l", "team=shop", "-n", "shop")
	if annotation(cache, flotillav1.AnnotationConfirmRemoval) != "" {
		t.Error("it was confirmed without an answer")
	}
	w.answers = []string{"y\n"}
	show(t, "confirm", "confirm removal -l team=shop -n shop", w.must("confirm", "removal", "-l", "team=shop", "-n", "shop"))
	for _, object := range []*flotillav1.Redis{cache, session} {
		if got := annotation(object, flotillav1.AnnotationConfirmRemoval); got != "1" {
			t.Errorf("%s has confirmation %q", object.Name, got)
		}
	}
	if annotation(elsewhere, flotillav1.AnnotationConfirmRemoval) != "" || annotation(leaving, flotillav1.AnnotationConfirmRemoval) != "" {
		t.Error("it was confirmed in another namespace, or where nothing waits")
	}
	w.must("confirm", "removal", "--all", "-A", "--yes")
	if got := annotation(elsewhere, flotillav1.AnnotationConfirmRemoval); got != "1" {
		t.Errorf("in the other namespace the confirmation is %q", got)
	}
	w.must("confirm", "leave", "redis/leaving", "-n", "shop", "--yes")
	w.must("confirm", "recreated", "redis/leaving", "-n", "shop", "--yes")
	if leave, recreated := annotation(leaving, flotillav1.AnnotationConfirmLeave), annotation(leaving, flotillav1.AnnotationConfirmRecreated); leave != "eu-2" || recreated != "eu-1" {
		t.Errorf("confirmed are %q and %q", leave, recreated)
	}
	if got := w.must("confirm", "leave", "redis/cache", "-n", "shop", "--yes").out; !strings.Contains(got, "Nothing of this kind waits at the 1 object") {
		t.Errorf("where nothing waits it says\n%s", got)
	}
	w.fails([]string{`"everything" cannot be confirmed`, "removal, leave, recreated"}, "confirm", "everything", "--all")
	w.fails([]string{"not clear for which objects", "--all"}, "confirm", "removal")
	w.fails([]string{"not clear for which objects"}, "confirm", "removal", "redis/cache", "--all")
	w.fails([]string{"is not a selector", "team=shop"}, "confirm", "removal", "-l", "=")
	w.fails([]string{"has no redis/shop/missing"}, "confirm", "removal", "redis/missing", "-n", "shop")
}
