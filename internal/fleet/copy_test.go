// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestFateOf(t *testing.T) {
	selected := &flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}
	written := func(uid, generation string) map[string]string {
		return map[string]string{flotillav1.AnnotationHubUID: uid, flotillav1.AnnotationHubGeneration: generation}
	}
	tests := map[string]struct {
		placement        *flotillav1.Placement
		deleting         bool
		confirm          string
		draining, chosen bool
		namespaces       []string
		annotations      map[string]string
		want             Fate
	}{
		"chosen":               {placement: selected, chosen: true, want: FateApply},
		"deleted":              {placement: selected, chosen: true, deleting: true, want: FateRemove},
		"draining":             {placement: selected, draining: true, annotations: written("u", "7"), want: FateRemove},
		"placement taken away": {want: FateRemove},
		"name taken out":       {placement: &flotillav1.Placement{Clusters: []string{"other"}}, want: FateRemove},
		"spec changed since the copy was written":             {placement: selected, annotations: written("u", "6"), want: FateRemove},
		"only the labels of the member changed":               {placement: selected, annotations: written("u", "7"), want: FateLeave},
		"leaving was confirmed":                               {placement: selected, confirm: "us-1, eu-1", annotations: written("u", "7"), want: FateRemove},
		"leaving was confirmed for another":                   {placement: selected, confirm: "us-1", annotations: written("u", "7"), want: FateLeave},
		"copy of an earlier hub object of the name":           {placement: selected, annotations: written("earlier", "6"), want: FateLeave},
		"copy from a future that the hub has forgotten":       {placement: selected, annotations: written("u", "9"), want: FateLeave},
		"generation lost":                                     {placement: selected, annotations: written("u", ""), want: FateLeave},
		"spec changed and the namespace is no longer allowed": {placement: selected, namespaces: []string{"other"}, annotations: written("u", "6"), want: FateLeave},
		"all": {placement: &flotillav1.Placement{All: true}, annotations: written("u", "7"), want: FateLeave},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := &flotillav1.Redis{
				ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 7, Annotations: map[string]string{flotillav1.AnnotationConfirmLeave: tc.confirm}},
				Spec:       flotillav1.RedisSpec{Placement: tc.placement},
			}
			if tc.deleting {
				object.DeletionTimestamp = &metav1.Time{}
			}
			if got := FateOf(object, "eu-1", &Member{Draining: tc.draining, Namespaces: tc.namespaces}, tc.chosen, tc.annotations); got != tc.want {
				t.Errorf("fate %q, want %q", got, tc.want)
			}
		})
	}
}

func TestIsOurs(t *testing.T) {
	object := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache", Annotations: map[string]string{
		flotillav1.AnnotationHub: "hub", flotillav1.AnnotationPlacedFrom: "shop/cache",
	}}}
	if !IsOurs(object, "hub") || IsOurs(object, "other") || IsOurs(object, "") {
		t.Error("a copy is ours when both annotations match, and never without a hub id")
	}
	object.Name = "cache-2"
	if IsOurs(object, "hub") {
		t.Error("a copy that was copied under another name is not ours")
	}
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Annotations: map[string]string{
		flotillav1.AnnotationHub: "hub", flotillav1.AnnotationPlacedFrom: "/pool",
	}}}
	if !IsOurs(pool, "hub") {
		t.Error("a cluster-scoped copy is not recognised")
	}
}

func TestNames(t *testing.T) {
	if diff := cmp.Diff([]string{"a", "b", "c"}, Names(" c,a\n b, a,,")); diff != "" {
		t.Error(diff)
	}
	if len(Names("")) != 0 {
		t.Error("an empty list has names")
	}
}

func TestTable(t *testing.T) {
	table := NewTable()
	key := ObjectKey{Kind: "Redis", Object: types.NamespacedName{Namespace: "shop", Name: "cache"}}
	var told []Outcome
	table.Subscribe(func(_ ObjectKey, _ string, outcome Outcome) { told = append(told, outcome) })

	table.Set(key, "eu-1", Outcome{})
	table.Set(key, "eu-1", Outcome{})
	before := table.Set(key, "eu-1", Outcome{Gone: true})
	if before != (Outcome{}) || len(told) != 2 || !told[1].Gone {
		t.Errorf("want one call per change, got %v", told)
	}
	table.Forget(key, "us-1")
	if !table.Get(key, "eu-1").Gone {
		t.Error("forgetting one member forgot another")
	}
	table.Forget(key, "eu-1")
	if table.Get(key, "eu-1") != (Outcome{}) || len(table.outcomes) != 0 {
		t.Error("a forgotten outcome is still there")
	}
}
