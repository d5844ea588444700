// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// TestPlacementDrill has five members, and a hub that is not well.
func TestPlacementDrill(t *testing.T) {
	runScenarios(t, start(t, 5), []scenario{
		{"MembersJoin", membersJoin},
		{"ObjectsArePlacedAndAddedUp", placedAndAddedUp},
		{"BadSpecHaltsAtOneMember", badSpecHalts},
		{"BadSpecIsTakenBack", badSpecReverts},
		{"LabelDroppedFromARegistration", labelDropped},
		{"HubIsRebuiltEmpty", hubRebuilt},
		{"KindsRemovedFromTheHub", kindsRemovedFromHub},
		{"ManagerIsKilledOften", func(t *testing.T, f *fleet) { managerKilled(t, f, 20) }},
		{"HubIsKilledWhileObjectsArePlaced", hubKilledWhilePlacing},
	})
}

// many is how many objects are on their way to the members when the hub is killed.
const many = 200

// hubKilledWhilePlacing kills the API server of the hub when the first of many copies are made.
func hubKilledWhilePlacing(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	asked := map[string]audit{}
	for _, name := range registered {
		asked[name] = f.audit(t, name)
	}
	f.stopManager(t)
	wanted := map[string]bool{}
	for i := range many {
		name := fmt.Sprintf("many-%03d", i)
		placement := &flotillav1.Placement{ClusterSelector: everyRegion()}
		var object client.Object = &flotillav1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: flotillav1.NodePoolSpec{
				Placement:    placement,
				NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/many": flotillav1.LabelValue(name)}},
				Labels:       map[string]flotillav1.LabelValue{"example.com/many-pool": "yes"},
			},
		}
		if i%20 == 0 {
			object = &flotillav1.Redis{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec:       flotillav1.RedisSpec{Replicas: new(int32(1)), Placement: placement},
			}
		}
		g.Expect(f.hub.Create(f.ctx, object)).To(Succeed())
		wanted[name] = true
	}
	f.startManager(t)
	last := registered[len(registered)-1]
	g.Eventually(func() int { return len(f.copies(g, last)) }, 60*time.Second, 20*time.Millisecond).Should(BeNumerically(">", many/10))
	end := killed.start(t, f, "hub")
	before := f.copies(g, last)
	g.Expect(len(before)).To(BeNumerically("<", many), "the hub goes away while copies are made")
	t.Logf("The hub is killed when %d of %d copies are in %s", len(before), many, last)
	g.Consistently(func() bool { return haveStayed(before, f.copies(g, last)) }, 15*time.Second, time.Second).Should(BeTrue(), "what is there stays")
	end()
	f.awaitReady(t, "hub")

	for _, name := range registered {
		g.Eventually(func() int { return len(f.copies(g, name)) }, 3*time.Minute, time.Second).Should(Equal(many), "every object is in %s", name)
	}
	g.Expect(haveStayed(before, f.copies(g, last))).To(BeTrue(), "what was there has stayed")
	g.Eventually(func(g Gomega) {
		pools, redises := &flotillav1.NodePoolList{}, &flotillav1.RedisList{}
		g.Expect(f.hub.List(f.ctx, pools)).To(Succeed())
		g.Expect(f.hub.List(f.ctx, redises, client.InNamespace(namespace))).To(Succeed())
		seen := 0
		count := func(name string, counts *flotillav1.ClusterCounts) {
			if wanted[name] && counts != nil && *counts == f.allReady() {
				seen++
			}
		}
		for _, pool := range pools.Items {
			count(pool.Name, pool.Status.ClusterCounts)
		}
		for _, redis := range redises.Items {
			count(redis.Name, redis.Status.ClusterCounts)
		}
		g.Expect(seen).To(Equal(many), "the hub knows of all of them")
	}, 2*time.Minute, time.Second).Should(Succeed())
	for _, name := range registered {
		made := map[string]int{}
		for _, path := range asked[name].requests(t, func(r request) bool {
			return r.ResponseStatus.Code == 201 && r.ObjectRef.Subresource == "" && wanted[r.ObjectRef.Name] &&
				(r.ObjectRef.Resource == "nodepools" || r.ObjectRef.Resource == "redises")
		}) {
			path, _, _ = strings.Cut(path, "?")
			made[path]++
		}
		for path, times := range made {
			g.Expect(times).To(Equal(1), "%s in %s", path, name)
		}
	}
}

// copies are the UIDs of the copies of the many objects in a member, by name.
func (f *fleet) copies(g Gomega, name string) map[string]types.UID {
	pools, redises := &metav1.PartialObjectMetadataList{}, &metav1.PartialObjectMetadataList{}
	pools.SetGroupVersionKind(flotillav1.GroupVersion.WithKind("NodePoolList"))
	redises.SetGroupVersionKind(flotillav1.GroupVersion.WithKind("RedisList"))
	found := map[string]types.UID{}
	for _, list := range []*metav1.PartialObjectMetadataList{pools, redises} {
		g.Expect(f.members[name].List(f.ctx, list)).To(Succeed())
		for _, object := range list.Items {
			if strings.HasPrefix(object.Name, "many-") {
				found[object.Name] = object.UID
			}
		}
	}
	return found
}

// haveStayed says whether the copies that were there are, and are the same.
func haveStayed(before, now map[string]types.UID) bool {
	for name, uid := range before {
		if now[name] != uid {
			return false
		}
	}
	return true
}
