// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
)

// soon is much less than transport.UnreadTime, after which a member is ready even if a watch is not well.
const soon = transport.UnreadTime / 6

// lateWatches is a fault whose watches of a resource are answered after answer is closed.
func lateWatches(resource string, answer <-chan struct{}) clusterstest.Fault {
	return clusterstest.Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		if req.URL.Query().Get("watch") == "true" && strings.HasSuffix(req.URL.Path, "/"+resource) {
			select {
			case <-answer:
			case <-req.Context().Done():
				return
			}
		}
		well.ServeHTTP(w, req)
	}}
}

// outage makes a member unreachable for a while, in which its object becomes another one. It comes back with a fault.
func (f *fleetOfFaults) outage(t *testing.T, member *faultyMember, value string, fault clusterstest.Fault) {
	t.Helper()
	member.server.Misbehave(t, clusterstest.Refuse())
	f.Eventually(f.state(member.secret.Name)).Should(Equal(clusters.StateUnreachable))
	f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReachable)).Should(HavePrefix("False"))
	member.server.Put(theirs("theirs", value))
	member.server.Misbehave(t, fault)
	f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReachable)).Should(Equal("True " + flotillav1.ReasonProbeSucceeded))
}

// cached returns what the cache of a member says of its object.
func (f *fleetOfFaults) cached(member *faultyMember) string {
	cluster, err := f.pool.Member(multicluster.ClusterName(member.secret.Name))
	if err != nil {
		return err.Error()
	}
	object := &corev1.ConfigMap{}
	if err := cluster.GetClient().Get(context.Background(), types.NamespacedName{Namespace: "default", Name: "theirs"}, object); err != nil {
		return err.Error()
	}
	return object.Data["value"]
}

// TestPool_a_member_is_ready_when_its_caches_have_caught_up has a member that answers again, but one of its watches late.
func TestPool_a_member_is_ready_when_its_caches_have_caught_up(t *testing.T) {
	t.Parallel()
	f := startFaults(t, 4)
	member := f.join(t, "late", 1)[0]
	answer := make(chan struct{})
	f.outage(t, member, "changed in the outage", lateWatches("configmaps", answer))
	f.Consistently(f.state(member.secret.Name), 2*time.Second).Should(Equal(clusters.StateSyncing), "the cache says %q", f.cached(member))
	f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReady)).Should(Equal("Unknown " + flotillav1.ReasonSyncing))
	close(answer)
	f.Eventually(f.state(member.secret.Name)).Should(Equal(clusters.StateReady))
	f.Eventually(func() string { return f.cached(member) }).Should(Equal("changed in the outage"))
	f.sees(member, "theirs", "changed in the outage")
	f.Expect(f.engaged.count(multicluster.ClusterName(member.secret.Name))).To(Equal(1))
}

// TestPool_a_member_is_ready_soon_after_an_outage has a member whose watches are well.
func TestPool_a_member_is_ready_soon_after_an_outage(t *testing.T) {
	t.Parallel()
	f := startFaults(t, 4)
	member := f.join(t, "soon", 1)[0]
	f.outage(t, member, "changed in the outage", clusterstest.Fault{})
	f.Eventually(f.state(member.secret.Name), soon).Should(Equal(clusters.StateReady))
	f.sees(member, "theirs", "changed in the outage")
}

// TestPool_a_watch_that_is_never_answered_does_not_keep_a_member_away has a member that answers again, but for one watch.
func TestPool_a_watch_that_is_never_answered_does_not_keep_a_member_away(t *testing.T) {
	t.Parallel()
	f := startFaults(t, 4)
	member := f.join(t, "never", 1)[0]
	answer := make(chan struct{})
	f.outage(t, member, "changed in the outage", lateWatches("configmaps", answer))
	f.Eventually(f.state(member.secret.Name)).Should(Equal(clusters.StateSyncing))
	f.clock.leap(transport.UnreadTime)
	f.Eventually(f.state(member.secret.Name)).Should(Equal(clusters.StateReady))
	f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReady)).Should(Equal("True " + flotillav1.ReasonWatchStalled))
	f.Expect(f.condition(member.secret.Name, flotillav1.ConditionCachesSynced)()).To(Equal("False " + flotillav1.ReasonWatchStalled))

	// Another outage does not make the member wait for what is off anyway.
	f.outage(t, member, "changed in another outage", lateWatches("configmaps", answer))
	f.Eventually(f.state(member.secret.Name), soon).Should(Equal(clusters.StateReady))
	f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReady)).Should(Equal("True " + flotillav1.ReasonWatchStalled))
	close(answer)
	f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReady)).Should(Equal("True " + flotillav1.ReasonConnected))
	f.sees(member, "theirs", "changed in another outage")
}

// TestPool_a_member_that_went_back_and_on_is_read_again restores members from snapshots that are younger than the last
// renewal of their claim. When they answer again, they have passed the revision that the watches had reached.
func TestPool_a_member_that_went_back_and_on_is_read_again(t *testing.T) {
	t.Parallel()
	const before = "theirs: of a fake"
	f := startFaults(t, 4)
	lost := []func(*clusterstest.Server){
		func(s *clusterstest.Server) { s.Put(theirs("theirs", "changed")) },
		func(s *clusterstest.Server) { s.Put(theirs("other", "made")) },
		func(s *clusterstest.Server) { s.Remove(theirs("theirs", "")) },
	}
	members := f.join(t, "went-on", len(lost))
	restore := make([]func(), len(lost))
	for i, member := range members {
		claim := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}}
		f.Eventually(func(g Gomega) {
			g.Expect(member.server.Find(claim)).To(BeTrue())
			g.Expect(claim.Spec.RenewTime.After(claim.Spec.AcquireTime.Time)).To(BeTrue(), "it is renewed when the caches are filled")
		}).Should(Succeed())
		restore[i] = member.server.Snapshot()
		lost[i](member.server)
		f.Eventually(func() string { return f.cachedAll(member) }).ShouldNot(Equal(before))
		member.server.Misbehave(t, clusterstest.Refuse())
	}
	for i, member := range members {
		f.Eventually(f.state(member.secret.Name)).Should(Equal(clusters.StateUnreachable))
		restore[i]()
		for passes := range 20 {
			member.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("passes-", passes)}})
		}
		member.server.Misbehave(t, clusterstest.Fault{})
	}
	for _, member := range members {
		f.Eventually(f.state(member.secret.Name)).Should(Equal(clusters.StateReady))
		f.Eventually(func() string { return f.cachedAll(member) }).Should(Equal(before))
	}
}

// cachedAll returns what the cache of a member has.
func (f *fleetOfFaults) cachedAll(member *faultyMember) string {
	cluster, err := f.pool.Member(multicluster.ClusterName(member.secret.Name))
	if err != nil {
		return err.Error()
	}
	list := &corev1.ConfigMapList{}
	if err := cluster.GetClient().List(context.Background(), list); err != nil {
		return err.Error()
	}
	var lines []string
	for i := range list.Items {
		lines = append(lines, fmt.Sprintf("%s: %s", list.Items[i].Name, list.Items[i].Data["value"]))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}
