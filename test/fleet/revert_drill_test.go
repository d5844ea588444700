// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// badSpecReverts gives the Redis on the hub what no node has room for, and has that taken back. The member that took it gets
// back what it had, and nobody else takes it while the spec of the hub stays as it is. Tried again with kubectl flotilla
// rollout retry, it fails again, and the rollout halts.
func badSpecReverts(t *testing.T, f *fleet) {
	g, registered := NewWithT(t), f.registered()
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	world := map[string]map[string]string{}
	for _, name := range registered[1:] {
		world[name] = f.world(t, name)
	}
	requests := func(name string) any { return f.memberRedis(name).Spec.Resources.Requests }

	f.changeHubRedis(t, `{"placement":{"rollout":{"progressDeadlineSeconds":10,"onHalt":"Revert"}},"resources":{"requests":{"memory":"64Ti"}}}`)
	first := registered[0]
	g.Eventually(func() any { return requests(first) }, 20*time.Second, 10*time.Millisecond).ShouldNot(BeNil())
	g.Eventually(func(g Gomega) {
		redis := f.hubRedis()
		progressing := apimeta.FindStatusCondition(redis.Status.Conditions, flotillav1.ConditionProgressing)
		g.Expect(progressing.Reason).To(Equal(flotillav1.ReasonRolloutReverted))
		g.Expect(conditionStatus(redis.Status.Conditions, flotillav1.ConditionStalled)).To(Equal("True"))
		g.Expect(redis.Status.Rollout).To(Equal(&flotillav1.RolloutStatus{Reverted: int32(len(registered))}))
		g.Expect(redis.Status.Trials).To(BeEmpty())
		g.Expect(redis.Spec.Resources.Requests).NotTo(BeNil(), "the spec of the hub stays")
	}, 90*time.Second, 200*time.Millisecond).Should(Succeed())
	status := f.memberRedis(first).Status
	g.Expect(status.ReadyReplicas).To(Equal(status.Replicas), "the first member has back what it had")
	for _, name := range registered {
		g.Expect(requests(name)).To(BeNil())
	}
	for _, name := range registered[1:] {
		g.Expect(cmp.Diff(world[name], f.world(t, name))).To(BeEmpty(), "%s keeps what it has", name)
	}

	f.command(t, filepath.Join(f.dir, "kubectl-flotilla"), "--kubeconfig", filepath.Join(f.dir, "kubeconfigs", "hub"), "rollout", "retry", "redis/cache", "-n", "shop")
	g.Eventually(func() string {
		return apimeta.FindStatusCondition(f.hubRedis().Status.Conditions, flotillav1.ConditionProgressing).Reason
	}, 90*time.Second, 200*time.Millisecond).Should(Equal(flotillav1.ReasonRolloutHalted), "a change that is tried again and fails again halts")
	g.Expect(requests(first)).NotTo(BeNil(), "it was tried again where it was tried before")
	for _, name := range registered[1:] {
		g.Expect(cmp.Diff(world[name], f.world(t, name))).To(BeEmpty(), "%s keeps what it has", name)
	}

	f.changeHubRedis(t, `{"placement":{"rollout":{"progressDeadlineSeconds":600,"onHalt":null}},"resources":null}`)
	f.expectConverged(t, registered...)
	expectBack(t, f, first)
}
