// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// expectUnknown waits until the hub says that it does not know one member, with the numbers it had before.
func expectUnknown(t *testing.T, f *fleet, name string, before *flotillav1.Redis, within time.Duration) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func() string { return conditionStatus(f.memberCluster(name).Status.Conditions, "Reachable") }, within, 200*time.Millisecond).Should(Equal("False"))
	expectEntryUnknown(t, f, name, before)
}

// expectEntryUnknown waits until the roll-up keeps one member apart, with the numbers it had before.
func expectEntryUnknown(t *testing.T, f *fleet, name string, before *flotillav1.Redis) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		redis := f.hubRedis()
		counts := redis.Status.ClusterCounts
		g.Expect(counts.Ready + counts.NotReady + counts.Unknown).To(Equal(counts.Desired))
		g.Expect(counts.Unknown).To(Equal(int32(1)))
		entry := redisEntry(redis, name)
		g.Expect(string(entry.Ready)).To(Equal("Unknown"))
		g.Expect(entry.ReadyReplicas).To(Equal(redisEntry(before, name).ReadyReplicas), "the last numbers stay")
		g.Expect(redis.Status.ReadyReplicas).To(Equal(before.Status.ReadyReplicas-entry.ReadyReplicas), "the total sums those that can be seen")
		g.Expect(conditionStatus(redis.Status.Conditions, "ClustersReachable")).To(Equal("False"))
		g.Expect(conditionStatus(redis.Status.Conditions, "Ready")).To(Equal("True"), "one dead cluster does not block")
	}, 10*time.Second, 200*time.Millisecond).Should(Succeed())
}

// hubObject is a Redis or a NodePool.
type hubObject interface {
	client.Object
	GetConditions() *[]metav1.Condition
}

// confirmHeld confirms, as a person would, the removal of copies that the budget holds. Many of the suite's copies go within
// ten minutes.
func (f *fleet) confirmHeld(objects ...hubObject) {
	for _, object := range objects {
		if err := f.hub.Get(f.ctx, client.ObjectKeyFromObject(object), object); err != nil {
			continue
		}
		generation := strconv.FormatInt(object.GetGeneration(), 10)
		if !apimeta.IsStatusConditionTrue(*object.GetConditions(), flotillav1.ConditionRemovalHeld) || object.GetAnnotations()[flotillav1.AnnotationConfirmRemoval] == generation {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, flotillav1.AnnotationConfirmRemoval, generation)
		_ = f.hub.Patch(f.ctx, object, client.RawPatch(types.MergePatchType, patch))
	}
}

// expectReaction deletes a Service in a member that is well and expects it back within a second.
func expectReaction(t *testing.T, f *fleet, name string) {
	t.Helper()
	NewWithT(t).Eventually(func() string { return conditionStatus(f.memberCluster(name).Status.Conditions, "Ready") }, 20*time.Second, 100*time.Millisecond).Should(Equal("True"))
	healService(t, f, name)
}

// healService deletes a Service in a member and expects it back within a second. The hub is not asked.
func healService(t *testing.T, f *fleet, name string) {
	t.Helper()
	g, member := NewWithT(t), f.members[name]
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cache-headless"}}
	g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
	uid := service.UID
	g.Expect(member.Delete(f.ctx, service)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(member.Get(f.ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
		g.Expect(service.UID).NotTo(Equal(uid))
	}, reactionTime(), 20*time.Millisecond).Should(Succeed())
}

func expectBack(t *testing.T, f *fleet, name string) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func(g Gomega) {
		g.Expect(conditionStatus(f.memberCluster(name).Status.Conditions, "Ready")).To(Equal("True"))
		redis := f.hubRedis()
		g.Expect(conditionStatus(redis.Status.Conditions, "FullyReady")).To(Equal("True"))
		g.Expect(redis.Status.ReadyReplicas).To(Equal(f.allReplicas()))
	}, 30*time.Second, 200*time.Millisecond).Should(Succeed())
}

// allReady is what the hub counts when all members are well.
func (f *fleet) allReady() flotillav1.ClusterCounts {
	n := int32(f.count)
	return flotillav1.ClusterCounts{Desired: n, Applied: n, Ready: n}
}

// allReplicas is how many replicas cacheRedis has in all members: 3 in each, but 2 in member-2, which has an override.
func (f *fleet) allReplicas() int32 { return int32(3*f.count - 1) }

// allNodes is how many nodes webPool has in all members.
func (f *fleet) allNodes() int32 { return int32(2 * f.count) }
