// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// claimed is an engaged fake member whose claim a test can tamper with. Its writer stands for a reconciler that asks
// nobody whether it may write.
type claimed struct {
	*fixture
	server *clusterstest.Server
	clock  *leapClock
	secret *corev1.Secret
	writer client.Client
	// claims answers calls of the claim; nil answers them well.
	claims atomic.Pointer[func(w http.ResponseWriter, req *http.Request, well http.Handler)]
	// arrived is the number of other writes that reached the member.
	arrived atomic.Int64
}

// startClaimed engages the member, with a claim that lasts three minutes and is renewed every minute.
func startClaimed(t *testing.T, name string) *claimed {
	t.Helper()
	c := &claimed{server: clusterstest.Start(t), clock: &leapClock{}}
	c.server.Misbehave(t, c.fault())
	c.fixture = startPool(t, hubCluster.Namespace(t), func(config *Config) { config.Clock, config.ClaimRenewal, config.Ended = c.clock, time.Minute, nil })
	c.secret = c.register(name, c.server.Kubeconfig())
	c.Eventually(c.condition(name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	c.Eventually(func() int { return c.engaged.count(c.name()) }).Should(Equal(1))
	c.writer = c.engaged.cluster(c.name()).GetClient()
	c.Expect(c.write()).To(Succeed())
	return c
}

// fault passes everything on, but calls of the claim to claims. The time of the member is that of the pool.
func (c *claimed) fault() clusterstest.Fault {
	return clusterstest.Fault{Answer: func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		claims := c.claims.Load()
		w.Header().Set("Date", c.clock.Now().UTC().Format(http.TimeFormat))
		switch {
		case strings.Contains(req.URL.Path, "/leases"):
			if claims != nil {
				(*claims)(w, req, well)
				return
			}
		case req.Method != http.MethodGet && req.URL.Path != reviewPath:
			c.arrived.Add(1)
		}
		well.ServeHTTP(w, req)
	}}
}

// name returns the name of the member.
func (c *claimed) name() multicluster.ClusterName { return multicluster.ClusterName(c.secret.Name) }

// onClaim has calls of the claim answered by someone.
func (c *claimed) onClaim(answer func(w http.ResponseWriter, req *http.Request, well http.Handler)) {
	c.claims.Store(&answer)
}

// write sends a write to the member.
func (c *claimed) write() error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "written-", Name: "written-" + time.Now().Format("150405.000000000")}}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return c.writer.Create(ctx, object)
}

// giveTo gives the claim to somebody else.
func (c *claimed) giveTo(holder string) {
	now := metav1.NewMicroTime(c.clock.Now())
	c.server.Put(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName, ResourceVersion: "1"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(180)), RenewTime: &now},
	})
}

// goAway has the member hang, and waits until that shows.
func (c *claimed) goAway() {
	c.server.Misbehave(c.t, clusterstest.Hang())
	c.Eventually(c.state(c.secret.Name)).Should(Equal(clusters.StateUnreachable))
}

// keepWriting has a writer that never stops until the returned function is called.
func (c *claimed) keepWriting() (stop func()) {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		for ctx.Err() == nil {
			_ = c.write()
		}
	})
	return func() { cancel(); running.Wait() }
}

func TestPool_holds_the_claim_after_an_outage_before_it_writes(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "claimed-meanwhile")
	c.goAway()
	c.giveTo("hub/successor/process")
	asked := make(chan struct{}, 1)
	answer := make(chan struct{})
	c.onClaim(func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		signal(asked)
		<-answer
		well.ServeHTTP(w, req)
	})
	arrived := c.arrived.Load()
	stop := c.keepWriting()
	defer stop()
	c.server.Misbehave(t, c.fault())
	c.Eventually(asked).Should(Receive(), "the claim is read")
	c.Expect(c.state(c.secret.Name)()).To(Equal(clusters.StateUnreachable), "the member is not ready before its claim is held")
	close(answer)
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionClaimed)).Should(Equal("False Superseded"))
	stop()
	c.Expect(c.arrived.Load()).To(Equal(arrived), "no write reached a member that belongs to somebody else")
}

func TestPool_holds_the_claim_after_a_pause_before_it_writes(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "claimed-in-a-pause")
	c.patch(c.secret, func() { c.secret.Annotations = map[string]string{flotillav1.AnnotationPaused: "true"} })
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionClaimed)).Should(Equal("Unknown Paused"))
	c.giveTo("hub/successor/process")
	arrived := c.arrived.Load()
	stop := c.keepWriting()
	defer stop()
	c.patch(c.secret, func() { c.secret.Annotations = nil })
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionClaimed)).Should(Equal("False Superseded"))
	stop()
	c.Expect(c.arrived.Load()).To(Equal(arrived), "no write reached a member that belongs to somebody else")
}

func TestPool_stops_writing_when_the_claim_cannot_be_renewed(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "claim-not-renewed")
	c.onClaim(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	c.clock.leap(75 * time.Second)
	c.Expect(c.write()).To(Succeed(), "the claim is held for half its duration")
	c.clock.leap(16 * time.Second)
	arrived := c.arrived.Load()
	c.Expect(heldFor(c.write())).To(Equal("NotClaimed"))
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionClaimed)).Should(Equal("Unknown RenewalFailed"))
	c.Expect(c.condition(c.secret.Name, flotillav1.ConditionReady)()).To(HavePrefix("True"), "the member is still read")
	c.Expect(heldFor(c.write())).To(Equal("NotClaimed"))
	c.Expect(c.arrived.Load()).To(Equal(arrived))

	c.claims.Store(nil)
	c.clock.leap(claimRetry)
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionClaimed)).Should(Equal("True Held"))
	c.Eventually(c.write).Should(Succeed())
	c.Expect(c.engaged.count(c.name())).To(Equal(1), "nothing was read again")
	c.unregister(c.secret)
}

func TestPool_refuses_a_member_that_forbids_its_claim(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "claim-forbidden")
	c.onClaim(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusForbidden) })
	c.clock.leap(10 * time.Minute)
	c.Eventually(func() string {
		c.clock.leap(claimRetry)
		return c.condition(c.secret.Name, flotillav1.ConditionReady)()
	}).Should(Equal("False Forbidden"))
	c.Expect(c.write()).NotTo(Succeed())
	c.unregister(c.secret)
}

// A member that is back but cannot keep the claim is asked once a second, and is read without being written after a while.
func TestPool_asks_at_its_pace_for_a_claim_that_fails_after_an_outage(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "claim-fails-after-outage")
	c.goAway()
	var asked atomic.Int64
	c.onClaim(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		asked.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	c.server.Misbehave(t, c.fault())
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionClaimed)).Should(Equal("Unknown RenewalFailed"))
	c.Expect(asked.Load()).To(BeNumerically("<=", 15))
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionReady)).Should(HavePrefix("True"))
	c.unregister(c.secret)
}

// renewed returns when the claim was renewed.
func (c *claimed) renewed() time.Time {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}
	c.Expect(c.engaged.cluster(c.name()).GetAPIReader().Get(context.Background(), key, lease)).To(Succeed())
	return lease.Spec.RenewTime.Time
}

// copyOfHub returns how a second process with the identity of the pool's hub holds the claim, as of a hub that was restored
// from a backup while the first one runs.
func (c *claimed) copyOfHub(second *preflight.Claim) func() error {
	config, err := clientcmd.RESTConfigFromKubeConfig(c.server.Kubeconfig())
	c.Expect(err).NotTo(HaveOccurred())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return preflight.Dated{RoundTripper: next} })
	direct, err := client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: c.pool.mapper})
	c.Expect(err).NotTo(HaveOccurred())
	return func() error {
		_, err := second.Hold(context.Background(), direct, preflight.HoldOptions{Member: "itself"})
		return err
	}
}

func TestPool_keeps_a_claim_that_a_copy_of_its_hub_asks_for(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "is-asked-for")
	second := &preflight.Claim{HubID: "hub", Instance: string(c.pool.instance), Process: "copy", Duration: 3 * time.Minute, Clock: c.clock}
	hold := c.copyOfHub(second)
	c.Expect(hold()).To(BeAssignableToTypeOf(&preflight.ClaimYoungError{}))
	for range 4 {
		before := c.renewed()
		c.clock.leap(time.Minute)
		c.Eventually(c.renewed).ShouldNot(Equal(before))
		c.Expect(hold()).To(MatchError(ContainSubstring("is claimed by another process")))
	}
	c.Expect(c.condition(c.secret.Name, flotillav1.ConditionClaimed)()).To(Equal("True Held"))
	c.Expect(c.write()).To(Succeed())
	c.unregister(c.secret)
}

// TestPool_waits_until_an_earlier_process_has_stopped_writing starts a second process 80 s after the first one renewed the
// claim for the last time. Timers run in real time, so the member is woken after a leap.
func TestPool_waits_until_an_earlier_process_has_stopped_writing(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "crashes-once")
	c.stop()
	before := c.arrived.Load()
	published := c.condition(c.secret.Name, flotillav1.ConditionReady)()
	var looks atomic.Int64
	c.onClaim(func(w http.ResponseWriter, req *http.Request, well http.Handler) {
		looks.Add(1)
		well.ServeHTTP(w, req)
	})
	c.clock.leap(80 * time.Second)
	c.fixture = startPool(t, c.namespace, func(config *Config) {
		config.Clock, config.ClaimRenewal, config.Ended = c.clock, time.Minute, nil
	})
	c.Eventually(looks.Load).Should(BeNumerically(">", 0))
	c.Consistently(c.state(c.secret.Name), "500ms").Should(Equal(clusters.StateConnecting))
	c.Expect(looks.Load()).To(Equal(int64(1)), "calls of the claim")
	c.Expect(c.arrived.Load()).To(Equal(before), "writes that have arrived")
	c.Expect(c.condition(c.secret.Name, flotillav1.ConditionReady)()).To(Equal(published))

	// After 95 s the first process may not write any more.
	c.clock.leap(20 * time.Second)
	c.Eventually(func() clusters.State {
		c.pool.wakeAll()
		return c.state(c.secret.Name)()
	}).Should(Equal(clusters.StateReady))
	c.unregister(c.secret)
}

// TestPool_does_not_take_back_the_claim_while_a_copy_of_its_hub_renews_it has one that believes that the first process has
// ended.
func TestPool_does_not_take_back_the_claim_while_a_copy_of_its_hub_renews_it(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "has-two-hubs")
	hold := c.copyOfHub(&preflight.Claim{
		HubID: "hub", Instance: string(c.pool.instance), Process: "copy", Duration: 3 * time.Minute, Clock: c.clock,
		Ended: func(string) bool { return true },
	})
	c.Expect(hold()).To(Succeed())
	c.clock.leap(time.Minute)
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionClaimed)).Should(Equal("False Superseded"))
	for range 4 {
		c.clock.leap(time.Minute)
		c.Expect(hold()).To(Succeed())
		c.Consistently(c.condition(c.secret.Name, flotillav1.ConditionClaimed), "300ms").Should(Equal("False Superseded"))
	}
	c.Expect(c.write()).NotTo(Succeed())

	// It takes over once the other one has stopped.
	c.Eventually(func() string {
		c.clock.leap(recheckLater)
		return c.condition(c.secret.Name, flotillav1.ConditionClaimed)()
	}).Should(Equal("True Held"))
	c.unregister(c.secret)
}

// TestPool_finds_by_its_claim_that_a_member_went_back has a member that was restored and has overtaken its revision.
func TestPool_finds_by_its_claim_that_a_member_went_back(t *testing.T) {
	t.Parallel()
	c := startClaimed(t, "went-back")
	old := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}
	c.Expect(c.engaged.cluster(c.name()).GetAPIReader().Get(context.Background(), key, old)).To(Succeed())
	c.clock.leap(time.Minute)
	renewed := &coordinationv1.Lease{}
	c.Eventually(func() bool {
		c.Expect(c.engaged.cluster(c.name()).GetAPIReader().Get(context.Background(), key, renewed)).To(Succeed())
		return renewed.Spec.RenewTime.After(old.Spec.RenewTime.Time)
	}).Should(BeTrue())
	c.server.Put(old)
	c.clock.leap(time.Minute)
	c.Eventually(func() []string { return c.events(c.secret.Name) }).Should(ContainElement("MemberRestored"))
	c.Eventually(func() int { return c.engaged.count(c.name()) }).Should(Equal(2))
	c.Eventually(c.condition(c.secret.Name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	c.unregister(c.secret)
}
