// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// offboardNote is the type and note of the event about what an offboarding left.
func (f *fixture) offboardNote(name string) func() string {
	return func() string {
		list := &eventsv1.EventList{}
		if err := hubCluster.Client.List(context.Background(), list); err != nil {
			return err.Error()
		}
		for _, e := range list.Items {
			if e.Reason == "ClusterOffboarded" && e.Regarding.Name == name {
				return e.Type + ": " + e.Note
			}
		}
		return "none"
	}
}

// series counts those of a member.
func series(t *testing.T, name string) int {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, family := range families {
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if label.GetName() == "cluster" && label.GetValue() == name {
					count++
				}
			}
		}
	}
	return count
}

func TestPool_offboards_without_keeping_objects_from_being_deleted(t *testing.T) {
	ctx := context.Background()
	workloads := memberOne.Namespace(t)
	f := startPool(t, hubCluster.Namespace(t))
	kept := redisIn(t, workloads, "kept", nil, flotillav1.FinalizerRedis, "example.com/theirs")
	deleted := redisIn(t, workloads, "deleted", nil, flotillav1.FinalizerRedis)
	pool := &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "offboards", Finalizers: []string{flotillav1.FinalizerNodePool}}}
	pool.Spec.NodeSelector = &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"a": "b"}}
	f.Expect(memberOne.Client.Create(ctx, pool)).To(Succeed())

	secret := f.register("offboards", memberOne.Kubeconfig())
	f.Eventually(f.condition("offboards", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count("offboards") }).Should(Equal(1))
	f.Expect(memberOne.Client.Delete(ctx, deleted)).To(Succeed())
	metrics.ObserveReconcile(f.pool, "redis", "offboards", 1)
	metrics.CountDroppedEvent(f.pool, "offboards", metrics.DropSuppressed)
	f.Expect(series(t, "offboards")).To(BeNumerically(">", 2), "these two, and those of the member")
	member := f.engaged.cluster("offboards")

	f.unregister(secret)
	f.Eventually(f.offboardNote("offboards")).Should(Equal(`Normal: Offboarded cluster "offboards"; its objects stay; the finalizers of 3 objects were removed`))
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
	f.Expect(kept.Finalizers).To(Equal([]string{"example.com/theirs"}))
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
	f.Expect(pool.Finalizers).To(BeEmpty())
	f.Expect(pool.DeletionTimestamp).To(BeNil())
	f.Expect(apierrors.IsNotFound(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(deleted), deleted))).To(BeTrue())
	f.Expect(series(t, "offboards")).To(BeZero())
	f.Expect(memberOne.Client.Delete(ctx, pool)).To(Succeed())

	// A pass that still runs cannot put anything back.
	late := redisObject(workloads, "late")
	f.Expect(member.GetClient().Create(ctx, late)).To(MatchError(transport.ErrEnded))
	f.Expect(apierrors.IsNotFound(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(late), late))).To(BeTrue())
}

func redisObject(namespace, name string) *flotillav1.Redis {
	return &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestPool_says_what_an_offboarding_could_not_remove(t *testing.T) {
	ctx := context.Background()
	workloads := memberOne.Namespace(t)
	l := testenv.NewLine(t, hostOf(t, memberOne.Config.Host))
	f := startPool(t, hubCluster.Namespace(t))
	kept := redisIn(t, workloads, "kept", nil, flotillav1.FinalizerRedis)
	secret := f.register("vanishes", l.Through(t, memberOne.Kubeconfig()))
	f.Eventually(f.condition("vanishes", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count("vanishes") }).Should(Equal(1))

	l.Hush(t)
	f.Eventually(f.state("vanishes")).Should(Equal(clusters.StateUnreachable))
	f.unregister(secret)
	f.Eventually(f.offboardNote("vanishes")).Should(Equal(`Warning: Offboarded cluster "vanishes"; its objects stay; not removed: ` +
		`the claim, Lease flotilla-system/flotilla-hub, the finalizers of Redis ` + workloads + `/kept`))
	l.Restore(t)
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
	f.Expect(kept.Finalizers).To(Equal([]string{flotillav1.FinalizerRedis}))
	lease := &coordinationv1.Lease{}
	f.Expect(memberOne.Client.Get(ctx, client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease)).To(Succeed())
}

func TestLeftovers(t *testing.T) {
	many := leftovers{left: strings.Split("g f e d c b a", " "), unknown: true}
	want := "the finalizers of a, b, c, d, e and 2 more, finalizers that could not be looked for"
	if diff := cmp.Diff(want, many.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
