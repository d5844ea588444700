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
	carries := func(uid, labels string) map[string]string {
		return map[string]string{flotillav1.AnnotationHubUID: uid, flotillav1.AnnotationClusterLabels: labels}
	}
	because := func(cause, labels string) []flotillav1.Departure {
		return []flotillav1.Departure{{Name: "eu-1", Cause: cause, Labels: labels}}
	}
	const labels, choice, undecided = flotillav1.DepartureLabelsChanged, flotillav1.DepartureChoiceChanged, flotillav1.DepartureUndecided
	tests := map[string]struct {
		placement        *flotillav1.Placement
		deleting         bool
		confirm          string
		draining, chosen bool
		namespaces       []string
		departing        []flotillav1.Departure
		annotations      map[string]string
		want             Fate
	}{
		"chosen":                              {placement: selected, chosen: true, want: FateApply},
		"chosen again, and the record is old": {placement: selected, chosen: true, departing: because(choice, ""), want: FateApply},
		"deleted":                             {placement: selected, chosen: true, deleting: true, want: FateRemove},
		"draining":                            {placement: selected, draining: true, annotations: carries("u", "l"), want: FateRemove},
		"placement taken away":                {want: FateRemove},
		"name taken out":                      {placement: &flotillav1.Placement{Clusters: []string{"other"}}, want: FateRemove},
		"the choice changed":                  {placement: selected, departing: because(choice, ""), annotations: carries("u", "l"), want: FateRemove},
		"the choice changed, copy not read":   {placement: selected, departing: because(choice, ""), want: FateRemove},
		"the choice changed for another":      {placement: selected, departing: []flotillav1.Departure{{Name: "eu-2", Cause: choice}}, annotations: carries("u", "l"), want: FateLeave},
		"labels changed":                      {placement: selected, departing: because(labels, ""), annotations: carries("u", "l"), want: FateLeave},
		"nothing recorded":                    {placement: selected, annotations: carries("u", "l"), want: FateLeave},
		"undecided, the labels are as before": {placement: selected, departing: because(undecided, "l"), annotations: carries("u", "l"), want: FateRemove},
		"undecided, the labels have changed":  {placement: selected, departing: because(undecided, "l"), annotations: carries("u", "k"), want: FateLeave},
		"undecided, the copy does not say":    {placement: selected, departing: because(undecided, "l"), annotations: carries("u", ""), want: FateLeave},
		"undecided, the record does not say":  {placement: selected, departing: because(undecided, ""), annotations: carries("u", ""), want: FateLeave},
		"undecided, copy not read":            {placement: selected, departing: because(undecided, "l"), want: FateLeave},
		"leaving was confirmed":               {placement: selected, confirm: "us-1, eu-1", annotations: carries("u", "l"), want: FateRemove},
		"leaving was confirmed for another":   {placement: selected, confirm: "us-1", annotations: carries("u", "l"), want: FateLeave},
		"copy of an earlier hub object":       {placement: selected, departing: because(choice, ""), annotations: carries("earlier", "l"), want: FateLeave},
		"the namespace is no longer allowed":  {placement: selected, departing: because(choice, ""), namespaces: []string{"other"}, annotations: carries("u", "l"), want: FateLeave},
		"all":                                 {placement: &flotillav1.Placement{All: true}, annotations: carries("u", "l"), want: FateLeave},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := &flotillav1.Redis{
				ObjectMeta: metav1.ObjectMeta{UID: "u", Generation: 7, Annotations: map[string]string{flotillav1.AnnotationConfirmLeave: tc.confirm}},
				Spec:       flotillav1.RedisSpec{Placement: tc.placement},
			}
			object.Status.Departing = tc.departing
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
	var outcomes []Outcome
	table.Subscribe(func(_ ObjectKey, _ string, outcome Outcome) { outcomes = append(outcomes, outcome) })

	table.Set(key, "eu-1", Outcome{})
	table.Set(key, "eu-1", Outcome{})
	before := table.Set(key, "eu-1", Outcome{Gone: true})
	if before != (Outcome{}) || len(outcomes) != 2 || !outcomes[1].Gone {
		t.Errorf("want one call per change, got %v", outcomes)
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
