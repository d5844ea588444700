// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/metrics"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// writers make ConfigMaps through a member's client, each with a read from the caches. The caches watch the first one of
// each n: a watch that sees nothing stays at its revision until the bookmark of the minute, which a stream that is replaced
// every few seconds never gets, and API servers forget what is older than the changes that they keep: a hundred, and those
// of the last 75 s.
type writers struct {
	begun, ended atomic.Int32
	failed       sync.Map
	all          sync.WaitGroup
}

// write begins n writes at once.
func (w *writers) write(member client.Client, namespace, prefix string, n int) {
	for i := range n {
		w.all.Go(func() {
			w.begun.Add(1)
			defer w.ended.Add(1)
			name := fmt.Sprint(prefix, i)
			object := configMap(namespace, name)
			if i == 0 {
				object.Labels = map[string]string{flotillav1.LabelRedis: name}
			}
			err := errors.Join(member.List(context.Background(), &flotillav1.RedisList{}), member.Create(context.Background(), object))
			if err != nil {
				w.failed.Store(name, err)
			}
		})
	}
}

// failures are the errors of those that failed.
func (w *writers) failures() (errs []error) {
	w.failed.Range(func(_, err any) bool {
		errs = append(errs, err.(error))
		return len(errs) < 5
	})
	return errs
}

// TestPool_rotates_while_a_thousand_requests_are_under_way rotates between two tokens, each behind a line of its own. The
// answers are held back until the other token is in use, so that every one of the requests is really under way at the
// moment of a rotation. A round has as many of them as fit on one connection: more would be waiting for another one.
func TestPool_rotates_while_a_thousand_requests_are_under_way(t *testing.T) {
	reservedOne.take(t)
	const rounds, perRound = 13, 80 // An odd number, so that the second token is the last one.
	ctx := context.Background()
	before, after := token(t, "token-before", time.Hour).Status.Token, token(t, "token-after", time.Hour).Status.Token
	workloads := memberOne.Namespace(t)
	lines := [2]*testenv.Line{testenv.NewLine(t, hostOf(t, memberOne.Config.Host)), testenv.NewLine(t, hostOf(t, memberOne.Config.Host))}
	kubeconfigs := [2][]byte{lines[0].Through(t, withToken(t, before)), lines[1].Through(t, withToken(t, after))}
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.Health = Health{} })
	secret := f.register("thousand", kubeconfigs[0])
	f.Eventually(f.condition("thousand", flotillav1.ConditionReady)).Should(Equal("True Connected"))
	member, err := f.pool.Member("thousand")
	f.Expect(err).NotTo(HaveOccurred())
	was, _ := f.pool.Snapshot("thousand")
	mark := memberOne.AuditMark(t)
	ofAccounts := func(keep func(testenv.Audited) bool) []testenv.Audited {
		return memberOne.AuditedSince(t, mark, func(a testenv.Audited) bool {
			return strings.HasPrefix(a.User.Username, "system:serviceaccount:default:token-") && keep(a)
		})
	}

	// A list alone is at the revision of a change to something else, maybe, and an API server that has forgotten the change
	// before it does not know that there was none in between.
	first := &writers{}
	first.write(member.GetClient(), workloads, "first-", 1)
	first.all.Wait()
	f.Expect(first.failures()).To(BeEmpty())
	f.Eventually(func() error {
		return member.GetClient().Get(ctx, client.ObjectKey{Namespace: workloads, Name: "first-0"}, &corev1.ConfigMap{})
	}).Should(Succeed())

	for round := range rounds {
		work, now, next := &writers{}, lines[round%2], (round+1)%2
		now.Hush(t)
		work.write(member.GetClient(), workloads, fmt.Sprintf("round-%d-", round), perRound)
		f.Eventually(work.begun.Load).Should(BeEquivalentTo(perRound))
		f.patch(secret, func() { secret.Data[flotillav1.KeyKubeconfig] = kubeconfigs[next] })
		f.Eventually(func() []string { return clusterstest.Series(t, ctrlmetrics.Registry) }).WithPolling(5 * time.Millisecond).Should(
			ContainElement(fmt.Sprintf(`flotilla_credential_rotations_total{cluster="thousand",result="%s"} %d`, metrics.RotationSucceeded, round+1)))
		f.Expect(work.ended.Load()).To(BeZero(), "all of them are under way")
		now.Restore(t)
		work.all.Wait()
		f.Expect(work.failures()).To(BeEmpty(), "no request is lost")
	}
	next := &writers{}
	next.write(member.GetClient(), workloads, "after-", 100)
	next.all.Wait()
	f.Expect(next.failures()).To(BeEmpty())

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "token-before"}}
	f.Expect(memberOne.Client.Delete(ctx, account)).To(Succeed())
	revoked, err := client.New(&rest.Config{Host: memberOne.Config.Host, BearerToken: before, TLSClientConfig: rest.TLSClientConfig{CAData: memberOne.Config.CAData}}, client.Options{Scheme: testenv.Scheme()})
	f.Expect(err).NotTo(HaveOccurred())
	// API servers remember for 10 s that a token was good.
	f.Eventually(func() bool { return verdict.IsUnauthorized(revoked.List(ctx, &corev1.NamespaceList{})) }).WithPolling(500 * time.Millisecond).Should(BeTrue())
	last := &writers{}
	last.write(member.GetClient(), workloads, "revoked-", 100)
	last.all.Wait()
	f.Expect(last.failures()).To(BeEmpty())
	redis := redisIn(t, workloads, "after-the-revocation", nil)
	f.Eventually(func() error {
		return member.GetClient().Get(ctx, client.ObjectKeyFromObject(redis), &flotillav1.Redis{})
	}).Should(Succeed())

	created := func(a testenv.Audited) bool {
		return a.IsWrite() && a.Verb == "create" && a.ObjectRef.Resource == "configmaps" && a.ResponseStatus.Code == 201
	}
	f.Eventually(func() int { return len(ofAccounts(created)) }).Should(Equal(1+rounds*perRound+200), "each request was carried out once")
	f.Expect(uris(ofAccounts(relisted))).To(BeEmpty(), "watches go over without a list")
	f.Expect(len(uris(ofAccounts(resumed)))).To(BeNumerically(">=", len(kinds.Watched())), "each watch went over")
	is, _ := f.pool.Snapshot("thousand")
	f.Expect(is.Incarnation).To(Equal(was.Incarnation))
	f.Expect(is.Since).To(Equal(was.Since), "the member was Ready all the time")
	f.unregister(secret)
}
