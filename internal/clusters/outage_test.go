// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// relisted keeps what reads a whole collection again. The question which revision the member has reached, which is asked
// before watches are resumed, is a list of one object's metadata.
func relisted(a testenv.Audited) bool {
	return a.UserAgent == userAgent && a.IsList() && !strings.HasSuffix(a.RequestURI, "?limit=1")
}

// resumed keeps watches that go on where they ended.
func resumed(a testenv.Audited) bool { return a.UserAgent == userAgent && a.IsResume() }

// uris are what was asked for.
func uris(requests []testenv.Audited) []string {
	all := make([]string, 0, len(requests))
	for _, request := range requests {
		all = append(all, request.RequestURI)
	}
	return all
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

	mark := memberTwo.AuditMark(t)
	over := time.After(outage)
	l.Hush(t)
	f.Eventually(f.state("minute")).Should(Equal(StateUnreachable))
	node := memberTwo.Node(t, "made-in-the-outage", nil)
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: workloads, Name: "made-in-the-outage"}}
	f.Expect(memberTwo.Client.Create(ctx, redis)).To(Succeed())
	<-over
	f.Expect(f.state("minute")()).To(Equal(StateUnreachable))
	f.Expect(memberTwo.AuditedSince(t, mark, func(a testenv.Audited) bool { return a.UserAgent == userAgent && a.Stage == "ResponseStarted" })).To(BeEmpty(), "nothing gets through")

	l.Restore(t)
	f.Eventually(f.state("minute")).Should(Equal(StateReady))
	f.Eventually(func() error {
		return errors.Join(member.GetClient().Get(ctx, client.ObjectKeyFromObject(node), &corev1.Node{}),
			member.GetClient().Get(ctx, client.ObjectKeyFromObject(redis), &flotillav1.Redis{}))
	}).Should(Succeed(), "what happened meanwhile arrives")
	f.Eventually(func() []string { return uris(memberTwo.AuditedSince(t, mark, resumed)) }).Should(HaveLen(len(watchedKinds())), "each watch is resumed, and once")
	f.Expect(uris(memberTwo.AuditedSince(t, mark, relisted))).To(BeEmpty())
	counted, _ := valueOf(t, `flotilla_relists_total{cluster="minute"}`)
	f.Expect(counted).To(Equal("0"))
	f.Expect(f.engaged.count("minute")).To(Equal(1))
	f.unregister(secret)
}
