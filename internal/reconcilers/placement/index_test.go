// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

func TestIndex_tells_which_objects_a_change_of_a_member_is_about(t *testing.T) {
	now := metav1.Now()
	x := &index{}
	set := func(name string, placement *flotillav1.Placement, placedIn []string, change ...func(*flotillav1.Redis)) {
		redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 1}}
		redis.Spec.Placement, redis.Status.PlacedIn = placement, placedIn
		for _, fn := range change {
			fn(redis)
		}
		x.set(redis)
	}
	named := &flotillav1.Placement{Clusters: []string{"eu-1"}}
	set("chosen-and-placed", &flotillav1.Placement{ClusterSelector: selectEU()}, []string{"eu-0", "eu-1"})
	set("chosen-not-placed", named, []string{"eu-0"})
	set("elsewhere", &flotillav1.Placement{Clusters: []string{"us-1"}}, []string{"us-1"})
	set("going", named, []string{"eu-1"}, func(r *flotillav1.Redis) { r.DeletionTimestamp = &now })
	set("gone", named, []string{"eu-1"})
	set("left-out", &flotillav1.Placement{Clusters: []string{"us-1"}}, []string{"eu-1"})
	set("moved-here", &flotillav1.Placement{Clusters: []string{"us-1"}}, nil)
	set("moved-here", named, nil, func(r *flotillav1.Redis) { r.Generation = 2 })
	set("somebody-waits", named, []string{"eu-1"}, func(r *flotillav1.Redis) {
		r.Annotations = map[string]string{flotillav1.AnnotationConfirmRemoval: "1"}
	})
	set("without", nil, nil)
	x.forget(types.NamespacedName{Name: "gone"})

	about := func(name string, placed, open bool) concern {
		return concern{key: types.NamespacedName{Name: name}, placed: placed, open: open}
	}
	member := fleet.Member{Name: "eu-1", Labels: map[string]string{"region": "eu"}, Accepted: true, Serves: true}
	want := []concern{
		about("chosen-and-placed", true, false), about("chosen-not-placed", false, true), about("going", true, true),
		about("left-out", true, true), about("moved-here", false, true), about("somebody-waits", true, true),
	}
	if diff := cmp.Diff(want, x.about("eu-1", member, true), cmp.AllowUnexported(concern{})); diff != "" {
		t.Errorf("a member that is there (-want +got):\n%s", diff)
	}
	want = []concern{
		about("chosen-and-placed", true, true), about("going", true, true), about("left-out", true, true), about("somebody-waits", true, true),
	}
	if diff := cmp.Diff(want, x.about("eu-1", fleet.Member{}, false), cmp.AllowUnexported(concern{})); diff != "" {
		t.Errorf("one that is not registered any more (-want +got):\n%s", diff)
	}
}
