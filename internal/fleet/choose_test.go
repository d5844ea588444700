// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

func TestChoose(t *testing.T) {
	eu := map[string]string{"region": "eu"}
	members := []Member{
		{Name: "eu-1", Labels: eu, Accepted: true, Serves: true},
		{Name: "eu-2", Labels: eu, Accepted: true, Serves: true},
		{Name: "eu-drained", Labels: eu, Accepted: true, Serves: true, Draining: true},
		{Name: "eu-nodes", Labels: eu, Accepted: true},
		{Name: "eu-refused", Labels: eu, Serves: true},
		{Name: "eu-tenant", Labels: eu, Accepted: true, Serves: true, Namespaces: []string{"", "team-b"}},
		{Name: "us-1", Labels: map[string]string{"region": "us"}, Accepted: true, Serves: true},
	}
	selectEU := &metav1.LabelSelector{MatchLabels: eu}
	tests := map[string]struct {
		placement *flotillav1.Placement
		placedIn  []string
		want      []string
		wantErr   bool
	}{
		"no placement chooses none":                      {},
		"names, registered or not":                       {placement: &flotillav1.Placement{Clusters: []string{"us-1", "ap-1"}}, want: []string{"ap-1", "us-1"}},
		"a refused registration can be named":            {placement: &flotillav1.Placement{Clusters: []string{"eu-refused"}}, want: []string{"eu-refused"}},
		"a selector chooses accepted members that serve": {placement: &flotillav1.Placement{ClusterSelector: selectEU}, want: []string{"eu-1", "eu-2"}},
		"names and selector are united":                  {placement: &flotillav1.Placement{ClusterSelector: selectEU, Clusters: []string{"eu-2", "us-1"}}, want: []string{"eu-1", "eu-2", "us-1"}},
		"a member of other namespaces can be named":      {placement: &flotillav1.Placement{Clusters: []string{"eu-tenant"}}, want: []string{"eu-tenant"}},
		"a member of other namespaces keeps its copy":    {placement: &flotillav1.Placement{ClusterSelector: selectEU}, placedIn: []string{"eu-tenant"}, want: []string{"eu-1", "eu-2", "eu-tenant"}},
		"all": {placement: &flotillav1.Placement{All: true}, want: []string{"eu-1", "eu-2", "us-1"}},
		"a draining member is not chosen by name either":   {placement: &flotillav1.Placement{Clusters: []string{"eu-drained"}}},
		"a member with a copy stays accepted":              {placement: &flotillav1.Placement{ClusterSelector: selectEU}, placedIn: []string{"eu-refused"}, want: []string{"eu-1", "eu-2", "eu-refused"}},
		"an empty selector chooses none":                   {placement: &flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{}}},
		"a selector that does not parse is an error":       {placement: &flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "not a value"}}}, wantErr: true},
		"one that does not parse hides behind names never": {placement: &flotillav1.Placement{Clusters: []string{"us-1"}, ClusterSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}, wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Choose(tc.placement, "team-a", members, tc.placedIn)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("chosen (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMembers_published_ones_are_not_forgotten(t *testing.T) {
	published := []flotillav1.MemberCluster{
		{ObjectMeta: metav1.ObjectMeta{Name: "eu-2", Labels: map[string]string{"region": "eu"}}, Status: flotillav1.MemberClusterStatus{UID: "u"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "refused"}},
	}
	members := Members([]Member{{Name: "eu-1", Decided: true, Visible: true}}, published)
	var names []string
	for _, member := range members {
		names = append(names, member.Name)
	}
	if diff := cmp.Diff([]string{"eu-1", "eu-2", "refused"}, names); diff != "" {
		t.Fatalf("names (-want +got):\n%s", diff)
	}
	if !members[0].Visible || members[1].Decided || !members[1].Accepted || members[2].Accepted {
		t.Errorf("the known member must win, and an unread one is undecided and accepted if it was engaged before: %+v", members)
	}
}
