// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// outage is a way in which an API server goes away.
type outage struct {
	name string
	// noticed is how soon the hub says that a member is not reachable.
	noticed time.Duration
	// resumes says that the API server goes on where it was, so that nothing need be listed again.
	resumes bool
	// begin starts it and returns what ends it.
	begin func(*testing.T, *fleet, string) (end func(*testing.T))
}

var (
	killed = outage{name: "Killed", noticed: 25 * time.Second, begin: func(t *testing.T, f *fleet, cluster string) func(*testing.T) {
		restart := f.kill(t, cluster, apiServer)
		f.lines[cluster].Refuse()
		return func(t *testing.T) {
			restart(t)
			f.lines[cluster].Restore(t)
			f.awaitReady(t, cluster)
		}
	}}
	cutOff = outage{name: "CutOff", noticed: 45 * time.Second, resumes: true, begin: func(t *testing.T, f *fleet, cluster string) func(*testing.T) {
		f.lines[cluster].Drop(t)
		return func(t *testing.T) { f.lines[cluster].Restore(t) }
	}}
)

// start begins an outage, which ends with the test if not before.
func (o outage) start(t *testing.T, f *fleet, cluster string) (end func()) {
	t.Helper()
	over := o.begin(t, f, cluster)
	done := false
	end = func() {
		if !done {
			done = true
			over(t)
		}
	}
	t.Cleanup(end)
	return end
}

// memberAway has a member go away under load and come back.
func memberAway(t *testing.T, f *fleet, name string, o outage) {
	g := NewWithT(t)
	registered := f.registered()
	others := slices.DeleteFunc(slices.Clone(registered), func(other string) bool { return other == name })
	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	before, world, manager, asked := f.hubRedis(), f.world(t, registered...), f.manager, map[string]audit{}
	for _, member := range registered {
		asked[member] = f.audit(t, member)
	}

	load := f.startMemberLoad(t, others...)
	end := o.start(t, f, name)
	expectUnknown(t, f, name, before, o.noticed)
	// A change that was on its way to the member when it vanished would wait for it: nobody knows which of them did that.
	load.loadHub()
	expectReaction(t, f, others[0])
	end()
	expectBack(t, f, name)
	deleted := load.stop(t)

	f.expectConverged(t, registered...)
	f.settled(t, registered...)
	g.Expect(cmp.Diff(world, f.world(t, registered...))).To(BeEmpty(), "everything is as before the outage")
	f.expectSameManager(t, manager)
	for _, member := range registered {
		recreated := asked[member].requests(t, func(r request) bool {
			return r.write() && r.Verb != "delete" && r.ObjectRef.Resource == "services" && r.ObjectRef.Name == "cache-any"
		})
		g.Expect(recreated).To(HaveLen(deleted[member]), "each deleted Service of %s came back once", member)
		if member != name || o.resumes {
			g.Expect(asked[member].requests(t, request.relist)).To(BeEmpty(), "nothing of %s is listed again", member)
		}
	}
}

// world describes what there is in members apart from what changes by itself: which objects, their specs, and what they
// are known by to others.
func (f *fleet) world(t *testing.T, names ...string) map[string]string {
	t.Helper()
	g, out := NewWithT(t), map[string]string{}
	for _, name := range names {
		member := f.members[name]
		for _, node := range f.nodes(name) {
			out[name+" "+node.Name] = fmt.Sprint(node.UID, node.Labels, node.Spec.Taints, node.Annotations)
		}
		sets := &appsv1.StatefulSetList{}
		g.Expect(member.List(f.ctx, sets, client.InNamespace(namespace))).To(Succeed())
		for _, set := range sets.Items {
			out[name+" StatefulSet "+set.Name] = fmt.Sprint(set.UID, set.Generation, set.Status.ReadyReplicas)
		}
		services := &corev1.ServiceList{}
		g.Expect(member.List(f.ctx, services, client.InNamespace(namespace))).To(Succeed())
		for _, service := range services.Items {
			out[name+" Service "+service.Name] = fmt.Sprint(service.Spec.ClusterIP, service.Spec.Selector, service.Spec.Ports)
		}
		pods := &corev1.PodList{}
		g.Expect(member.List(f.ctx, pods, client.InNamespace(namespace))).To(Succeed())
		for _, pod := range pods.Items {
			out[name+" Pod "+pod.Name] = fmt.Sprint(pod.UID)
		}
		claims := &corev1.PersistentVolumeClaimList{}
		g.Expect(member.List(f.ctx, claims, client.InNamespace(namespace))).To(Succeed())
		for _, claim := range claims.Items {
			out[name+" PersistentVolumeClaim "+claim.Name] = fmt.Sprint(claim.UID)
		}
		budgets := &policyv1.PodDisruptionBudgetList{}
		g.Expect(member.List(f.ctx, budgets, client.InNamespace(namespace))).To(Succeed())
		for _, budget := range budgets.Items {
			out[name+" PodDisruptionBudget "+budget.Name] = fmt.Sprint(budget.UID)
		}
		secrets := &corev1.SecretList{}
		g.Expect(member.List(f.ctx, secrets, client.InNamespace(namespace))).To(Succeed())
		for _, secret := range secrets.Items {
			out[name+" Secret "+secret.Name] = fmt.Sprint(secret.UID, len(secret.Data))
		}
		redis := f.memberRedis(name)
		out[name+" Redis"] = fmt.Sprint(redis.UID, redis.Finalizers, redis.Status.ReadyReplicas, redis.Status.Primary)
		pool := f.memberPool(name)
		out[name+" NodePool"] = fmt.Sprint(pool.UID, pool.Finalizers, pool.Spec.Labels, pool.Spec.Taints)
	}
	return out
}
