// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// badSpecHalts gives the Redis on the hub what no node has room for. One member takes it, where the first replica that is
// replaced shows that it does not work; all others keep what they have until the spec is put back.
func badSpecHalts(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world := map[string]map[string]string{}
	for _, name := range registered {
		world[name] = f.world(t, name)
	}

	f.changeHubRedis(t, `{"placement":{"rollout":{"progressDeadlineSeconds":10}},"resources":{"requests":{"memory":"64Ti"}}}`)
	g.Eventually(func() string {
		progressing := apimeta.FindStatusCondition(f.hubRedis().Status.Conditions, flotillav1.ConditionProgressing)
		return string(progressing.Status) + " " + progressing.Reason
	}, 40*time.Second, 200*time.Millisecond).Should(Equal("False " + flotillav1.ReasonRolloutHalted))
	var took []string
	for _, name := range registered {
		if f.memberRedis(name).Spec.Resources.Requests != nil {
			took = append(took, name)
			continue
		}
		g.Expect(cmp.Diff(world[name], f.world(t, name))).To(BeEmpty(), "%s keeps what it has", name)
	}
	g.Expect(took).To(HaveLen(1), "one member takes the spec")
	status := f.memberRedis(took[0]).Status
	g.Expect(status.ReadyReplicas).To(Equal(status.Replicas-1), "there, one Pod shows that it does not work")
	g.Expect(conditionStatus(f.hubRedis().Status.Conditions, flotillav1.ConditionReady)).To(Equal("False"))

	f.changeHubRedis(t, `{"resources":null}`)
	expectBack(t, f, took[0])
	g.Eventually(func(g Gomega) {
		redis := f.hubRedis()
		g.Expect(redis.Status.ObservedGeneration).To(Equal(redis.Generation))
		g.Expect(*redis.Status.ClusterCounts).To(Equal(f.allReady()))
	}, 20*time.Second, 200*time.Millisecond).Should(Succeed())
	for _, name := range registered {
		g.Expect(f.memberRedis(name).Spec.Resources.Requests).To(BeNil())
		if name != took[0] {
			g.Expect(cmp.Diff(world[name], f.world(t, name))).To(BeEmpty(), "%s keeps what it has", name)
		}
	}
}

// changeCutsOff cuts the network of the first member that takes a change, at that moment. No other member takes it until the
// first one is back and ready with it.
func changeCutsOff(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world := map[string]map[string]string{}
	for _, name := range registered[1:] {
		world[name] = f.world(t, name)
	}
	took := func(name string) bool { return f.memberRedis(name).Spec.Resources.Requests != nil }

	f.changeHubRedis(t, `{"placement":{"rollout":{"progressDeadlineSeconds":10}},"resources":{"requests":{"cpu":"20m"}}}`)
	first := registered[0]
	g.Eventually(func() bool { return took(first) }, 20*time.Second, 10*time.Millisecond).Should(BeTrue())
	end := cutOff.start(t, f, first)
	g.Eventually(func() string {
		progressing := apimeta.FindStatusCondition(f.hubRedis().Status.Conditions, flotillav1.ConditionProgressing)
		return progressing.Reason + ": " + progressing.Message
	}, 60*time.Second, 200*time.Millisecond).Should(HavePrefix(flotillav1.ReasonRolloutHalted + ": Not ready in time: " + first + " ("))
	for _, name := range registered[1:] {
		g.Expect(took(name)).To(BeFalse(), "%s does not take it", name)
		g.Expect(cmp.Diff(world[name], f.world(t, name))).To(BeEmpty(), "%s keeps what it has", name)
	}

	end()
	g.Eventually(func(g Gomega) {
		for _, name := range registered {
			g.Expect(took(name)).To(BeTrue(), "%s takes it", name)
		}
	}, 2*time.Minute, 200*time.Millisecond).Should(Succeed())
	expectBack(t, f, first)
	f.changeHubRedis(t, `{"placement":{"rollout":{"progressDeadlineSeconds":600}},"resources":null}`)
	f.expectConverged(t, registered...)
	expectBack(t, f, first)
}

// changeHubRedis patches the spec of the Redis on the hub.
func (f *fleet) changeHubRedis(t *testing.T, spec string) {
	t.Helper()
	if err := f.hub.Patch(f.ctx, cacheRedis(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
		t.Fatalf("changing the Redis on the hub: %v", err)
	}
}
