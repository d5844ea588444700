// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
)

// theirs is the object that each fake has.
func theirs(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{flotillav1.LabelRedis: "cart"},
	}, Data: map[string]string{"value": value}}
}

// sees waits until the controller has seen what an object of a member says.
func (f *fleetOfFaults) sees(member *faultyMember, name, value string) {
	f.t.Helper()
	request := clusters.Request{ClusterName: multicluster.ClusterName(member.secret.Name)}
	request.NamespacedName = types.NamespacedName{Namespace: "default", Name: name}
	f.Eventually(func() string { return f.saw(request) }).Should(Equal(value), member.secret.Name)
}

// join registers well-behaved fakes and waits for them.
func (f *fleetOfFaults) join(t *testing.T, prefix string, count int) []*faultyMember {
	t.Helper()
	members := f.registerFaulty(t, prefix, make([]faultCase, count), func(*testing.T, *faultyMember) {})
	for _, member := range members {
		f.sees(member, "theirs", "of a fake")
	}
	return members
}

// TestPool_many_members_that_begin_to_hang has a third of the members hang at one moment, with more work for each of them
// than there are workers. Their streams stay open, so that the pool does not notice.
func TestPool_many_members_that_begin_to_hang(t *testing.T) {
	t.Parallel()
	f := startFaults(t, 16)
	members := f.join(t, "hangs", 29)
	usual := f.react(t, 5)
	for _, member := range members[:10] {
		member.server.Misbehave(t, clusterstest.Hang(), true)
		for i := range 20 {
			member.server.Put(theirs(fmt.Sprint("more-", i), "new"))
		}
	}
	// A call is given SuspectTime, and then the probe its deadline. The deadline of a call would be 10 s, for one after
	// the other.
	bound := transport.SuspectTime + f.pool.cfg.Health.AwayTimeout + 3*time.Second
	slowest := f.react(t, 10)
	t.Logf("the slowest reaction is %v, %v before", slowest, usual)
	if slowest > bound {
		t.Errorf("a member that is well reacted after %v while 10 of 30 hang, allowed are %v", slowest, bound)
	}
	for _, member := range members[:10] {
		f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReachable)).Should(Equal("False " + flotillav1.ReasonTimeout))
	}
	for _, member := range members[:10] {
		member.server.Misbehave(t, clusterstest.Fault{})
	}
	for _, member := range members[:10] {
		for i := range 20 {
			f.sees(member, fmt.Sprint("more-", i), "new")
		}
	}
}

// TestPool_a_member_that_went_back_is_read_again_once restores a member from an old snapshot, and then again and again.
func TestPool_a_member_that_went_back_is_read_again_once(t *testing.T) {
	t.Parallel()
	f := startFaults(t, 4)
	member := f.join(t, "restored", 1)[0]
	name := multicluster.ClusterName(member.secret.Name)
	for i := range 20 {
		member.server.Put(theirs("theirs", fmt.Sprint("history ", i)))
	}
	f.sees(member, "theirs", "history 19")
	member.server.Restore(1000)
	f.Eventually(func() int { return f.engaged.count(name) }).Should(Equal(2))
	member.server.Put(theirs("theirs", "another history"))
	f.sees(member, "theirs", "another history")
	f.Eventually(f.condition(string(name), flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Expect(f.engaged.count(name)).To(Equal(2), "once is enough")

	// From now on it is not read again at once each time.
	for i := range 20 {
		member.server.Put(theirs("theirs", fmt.Sprint("history ", i)))
	}
	f.sees(member, "theirs", "history 19")
	member.server.Restore(1000)
	f.Eventually(f.state(string(name))).Should(Equal(clusters.StatePending))
	f.Eventually(f.state(string(name))).Should(Equal(clusters.StateReady))
	f.Eventually(func() int { return f.engaged.count(name) }).Should(Equal(3), "it is read again, later")
}

// TestPool_lists_where_a_watch_never_ends_its_list has a member that is engaged begin to keep the end of its lists back,
// as some proxies do, and forget its history so that it must be listed.
func TestPool_lists_where_a_watch_never_ends_its_list(t *testing.T) {
	t.Parallel()
	f := startFaults(t, 4)
	member := f.join(t, "endless", 1)[0]
	for i := range 5 {
		member.server.Put(theirs("theirs", fmt.Sprint("history ", i)))
	}
	f.sees(member, "theirs", "history 4")
	member.server.Forget()
	before := member.server.Requests()
	member.server.Misbehave(t, clusterstest.WithoutInitialEnd())
	f.Eventually(member.server.Requests).Should(BeNumerically(">", before+2*int64(len(kinds.Watched()))))
	member.server.Put(theirs("theirs", "behind the end"))
	f.Eventually(func() string {
		f.clock.leap(transport.StallTime)
		return f.condition(member.secret.Name, flotillav1.ConditionCachesSynced)()
	}).
		WithPolling(time.Second).Should(Equal("False " + flotillav1.ReasonWatchStalled))
	f.sees(member, "theirs", "behind the end")
	f.Expect(f.engaged.count(multicluster.ClusterName(member.secret.Name))).To(Equal(1))
}

// TestPool_says_that_a_member_answers_while_it_is_read has a member whose lists take their time.
func TestPool_says_that_a_member_answers_while_it_is_read(t *testing.T) {
	t.Parallel()
	f := startFaults(t, 4)
	member := f.registerFaulty(t, "long-read", make([]faultCase, 1), func(t *testing.T, member *faultyMember) {
		member.server.Misbehave(t, clusterstest.WithoutInitialEnd())
	})[0]
	f.Eventually(f.state(member.secret.Name)).Should(Equal(clusters.StateSyncing))
	f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReachable)).
		Should(Equal("True " + flotillav1.ReasonProbeSucceeded))
	f.Expect(f.state(member.secret.Name)()).To(Equal(clusters.StateSyncing))
}

// TestPool_a_member_that_hangs_while_it_is_read_delays_no_other has as many such members as slots.
func TestPool_a_member_that_hangs_while_it_is_read_delays_no_other(t *testing.T) {
	t.Parallel()
	f := startPool(t, hubCluster.Namespace(t), func(c *Config) { c.Slots, c.SlotTime, c.SyncTimeout = 1, time.Hour, time.Hour })
	hangs, well := clusterstest.Start(t), clusterstest.Start(t)
	reads := make(chan struct{}, 1)
	hangs.Misbehave(t, clusterstest.Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if query := req.URL.Query(); !query.Has("watch") && !query.Has("limit") {
			well.ServeHTTP(w, req)
			return
		}
		signal(reads)
		<-req.Context().Done()
	}})
	f.register("hangs-in-a-slot", hangs.Kubeconfig())
	f.Eventually(reads).Should(Receive())
	f.register("waits-for-a-slot", well.Kubeconfig())
	f.Eventually(f.condition("waits-for-a-slot", flotillav1.ConditionReady)).Should(Equal("True Connected"))
}
