// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func selecting(region string, names ...string) *flotillav1.Placement {
	return &flotillav1.Placement{Clusters: names, ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": region}}}
}

// TestDepartures is the table in the comment of Departures.
func TestDepartures(t *testing.T) {
	eu, none := map[string]string{"region": "eu"}, map[string]string{}
	const labels, choice, undecided = flotillav1.DepartureLabelsChanged, flotillav1.DepartureChoiceChanged, flotillav1.DepartureUndecided
	tests := map[string]struct {
		before, now *flotillav1.Placement
		recorded    string
		labels      map[string]string
		carried     map[string]string
		away        bool
		want        string
	}{
		"same choice, labels changed":                {before: selecting("eu"), now: selecting("eu"), labels: none, carried: eu, want: labels},
		"same choice, member away":                   {before: selecting("eu"), now: selecting("eu"), labels: none, away: true, want: labels},
		"same choice, still leaving":                 {before: selecting("eu"), now: selecting("eu"), recorded: labels, labels: none, carried: eu, want: labels},
		"same choice, still to be removed":           {before: selecting("us"), now: selecting("us"), recorded: choice, labels: none, carried: eu, want: choice},
		"choice changed":                             {before: selecting("eu"), now: selecting("us"), labels: eu, carried: eu, want: choice},
		"choice changed while leaving":               {before: selecting("eu"), now: selecting("eu", "us-1"), recorded: labels, labels: none, carried: eu, want: choice},
		"choice and labels changed":                  {before: selecting("eu"), now: selecting("us"), labels: none, carried: eu, want: labels},
		"choice changed, member away":                {before: selecting("eu"), now: selecting("us"), labels: eu, away: true, want: undecided},
		"undecided, member back":                     {before: selecting("us"), now: selecting("us"), recorded: undecided, labels: none, carried: eu, want: choice},
		"undecided, member still away":               {before: selecting("us"), now: selecting("us"), recorded: undecided, labels: none, away: true, want: undecided},
		"undecided, choice changed again":            {before: selecting("us"), now: selecting("ap"), recorded: undecided, labels: none, away: true, want: undecided},
		"nothing recorded by the version before":     {now: selecting("us"), labels: eu, carried: nil, want: labels},
		"copy of the version before, choice changed": {before: selecting("eu"), now: selecting("us"), labels: eu, carried: map[string]string{}, want: labels},
		"chosen":                         {before: selecting("eu"), now: selecting("eu"), recorded: choice, labels: eu, carried: eu},
		"chosen by name, labels changed": {before: selecting("eu"), now: selecting("us", "eu-1"), labels: none, carried: eu},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := &flotillav1.Redis{}
			if tc.before != nil {
				before, err := NewChoice(tc.before, "shop")
				if err != nil {
					t.Fatal(err)
				}
				object.Status.Choice = before.Hash()
			}
			if tc.recorded != "" {
				object.Status.Departing = []flotillav1.Departure{{Name: "eu-1", Cause: tc.recorded}}
				if tc.recorded == undecided {
					object.Status.Departing[0].Labels = LabelsHash(eu)
				}
			}
			now, err := NewChoice(tc.now, "shop")
			if err != nil {
				t.Fatal(err)
			}
			member := Member{Name: "eu-1", Labels: tc.labels, Accepted: true, Serves: true}
			got := Departures(object, now, []string{"eu-1"}, []Member{member}, func(Member) (string, bool) { return LabelsHash(tc.carried), !tc.away })
			cause := ""
			if len(got) == 1 {
				cause = got[0].Cause
			}
			if cause != tc.want || len(got) > 1 {
				t.Errorf("departures %+v, want %q", got, tc.want)
			}
		})
	}
}

func TestChoice_hash_is_about_what_chooses(t *testing.T) {
	hash := func(p *flotillav1.Placement) string {
		choice, err := NewChoice(p, "shop")
		if err != nil {
			t.Fatal(err)
		}
		return choice.Hash()
	}
	expressions := func(keys ...string) *flotillav1.Placement {
		selector := &metav1.LabelSelector{}
		for _, key := range keys {
			selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		}
		return &flotillav1.Placement{ClusterSelector: selector}
	}
	same := [][2]*flotillav1.Placement{
		{{Clusters: []string{"a", "b"}}, {Clusters: []string{"b", "a"}}},
		{{All: true, DeletionPolicy: "Orphan"}, {All: true, ConflictPolicy: "Adopt"}},
		{expressions("a", "b"), expressions("b", "a")},
	}
	for _, pair := range same {
		if hash(pair[0]) != hash(pair[1]) {
			t.Errorf("these choose the same:\n%s", cmp.Diff(pair[0], pair[1]))
		}
	}
	seen := map[string]int{}
	for i, placement := range []*flotillav1.Placement{
		nil, {All: true}, {Clusters: []string{"a"}}, {Clusters: []string{"a", "b"}}, selecting("eu"), selecting("us"), selecting("eu", "a"), expressions("a"),
	} {
		if other, found := seen[hash(placement)]; found {
			t.Errorf("placements %d and %d are the same choice", other, i)
		}
		seen[hash(placement)] = i
	}
}
