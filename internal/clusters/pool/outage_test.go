// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// relisted keeps what reads a whole collection again. The questions that are asked before watches are resumed, which
// revision the member has reached and whether it has the newest change, are lists of one object's metadata.
func relisted(a testenv.Audited) bool {
	return a.UserAgent == transport.UserAgent && a.IsList() && !strings.Contains(a.RequestURI+"&", "limit=1&")
}

// resumed keeps watches that go on where they ended.
func resumed(a testenv.Audited) bool { return a.UserAgent == transport.UserAgent && a.IsResume() }

// uris are what was asked for.
func uris(requests []testenv.Audited) []string {
	all := make([]string, 0, len(requests))
	for _, request := range requests {
		all = append(all, request.RequestURI)
	}
	return all
}

// awaitProof waits until the claim of a member whose caches are filled has been renewed. Only then is it known after an outage
// what the member had before.
func (f *fixture) awaitProof(member client.Client) {
	f.t.Helper()
	claim, filled := &coordinationv1.Lease{}, time.Now()
	f.Eventually(func(g Gomega) {
		g.Expect(member.Get(context.Background(), client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, claim)).To(Succeed())
		g.Expect(claim.Spec.RenewTime.After(filled)).To(BeTrue())
	}).Should(Succeed())
}

// TestPool_recovers_from_a_minute_of_outage_without_a_list takes a real minute: what an API server and the reflectors do
// about a connection that is dead for so long cannot be asked of a fake.
func TestPool_recovers_from_a_minute_of_outage_without_a_list(t *testing.T) {
	reservedTwo.take(t)
	const outage = time.Minute
	ctx := context.Background()
	l := testenv.NewLine(t, hostOf(t, memberTwo.Config.Host))
	f := startPool(t, hubCluster.Namespace(t))
	secret := f.register("minute", l.Through(t, memberTwo.Kubeconfig()))
	f.Eventually(f.condition("minute", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	member, err := f.pool.Member("minute")
	f.Expect(err).NotTo(HaveOccurred())
	workloads := memberTwo.Namespace(t)
	f.awaitProof(memberTwo.Client)

	mark := memberTwo.AuditMark(t)
	over := time.After(outage)
	l.Hush(t)
	f.Eventually(f.state("minute")).Should(Equal(clusters.StateUnreachable))
	node := memberTwo.Node(t, "made-in-the-outage", nil)
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: "made-in-the-outage"}}
	f.Expect(memberTwo.Client.Create(ctx, redis)).To(Succeed())
	<-over
	f.Expect(f.state("minute")()).To(Equal(clusters.StateUnreachable))
	f.Expect(memberTwo.AuditedSince(t, mark, func(a testenv.Audited) bool {
		return a.UserAgent == transport.UserAgent && a.Stage == "ResponseStarted"
	})).To(BeEmpty(), "nothing gets through")

	l.Restore(t)
	f.Eventually(f.state("minute")).Should(Equal(clusters.StateReady))
	f.Eventually(func() error {
		return errors.Join(member.GetClient().Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}),
			member.GetClient().Get(ctx, client.ObjectKeyFromObject(redis), &flotillav1.Redis{}))
	}).Should(Succeed(), "what happened meanwhile arrives")
	f.Eventually(func() []string { return uris(memberTwo.AuditedSince(t, mark, resumed)) }).Should(HaveLen(len(kinds.Watched())), "each watch is resumed, and once")
	f.Expect(uris(memberTwo.AuditedSince(t, mark, relisted))).To(BeEmpty())
	counted, _ := valueOf(t, `flotilla_relists_total{cluster="minute"}`)
	f.Expect(counted).To(Equal("0"))
	f.Expect(f.engaged.count("minute")).To(Equal(1))
	f.unregister(secret)
}
