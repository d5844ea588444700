// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/controller"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/transport"
)

// leapClock is the real clock, but for the hours that a test leaps over. Timers run in real time.
type leapClock struct {
	clock.RealClock
	leapt atomic.Int64
}

// Now implements clock.PassiveClock.
func (c *leapClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(c.leapt.Load())) }

// Since implements clock.PassiveClock.
func (c *leapClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// leap goes ahead.
func (c *leapClock) leap(by time.Duration) { c.leapt.Add(int64(by)) }

// fleetOfFaults is a pool with one real member that is well, and a controller that writes down what it sees there.
type fleetOfFaults struct {
	*fixture
	clock     *leapClock
	healthy   string    // The name of the member that is well.
	identity  types.UID // Its.
	namespace string    // In it.
	passed    chan struct{}

	mu   sync.Mutex
	seen map[string]string // The value that the last pass over an object saw.
}

// startFaults runs the pool, and the controller of a reconciler that reads each object from the member itself.
func startFaults(t *testing.T, workers int) *fleetOfFaults {
	t.Helper()
	return startFaultsWith(t, workers, func(c *Config) {
		c.SyncTimeout = 12 * time.Second
		// A member may need four times CachedBytes while its caches are filled, and 32 MiB for what is decoded: see mostForOne.
		c.Limits = transport.Limits{AnswerBytes: 1 << 20, ListBytes: 8 << 20, CachedObjects: 10_000, CachedBytes: 6 << 20, WatchEvents: 50_000}
	})
}

// startFaultsWith configures the pool.
func startFaultsWith(t *testing.T, workers int, configure func(*Config)) *fleetOfFaults {
	t.Helper()
	f := &fleetOfFaults{clock: &leapClock{}, namespace: memberOne.Namespace(t), passed: make(chan struct{}, 1), seen: map[string]string{}}
	f.fixture = startPoolWith(t, hubCluster.Namespace(t), func(mgr mcmanager.Manager, pool *Pool) error {
		c, err := controller.New(t.Name(), mgr, pool, workers, reconcile.TypedFunc[clusters.Request](
			func(ctx context.Context, req clusters.Request) (reconcile.Result, error) {
				return f.reconcile(ctx, pool, req)
			}))
		if err != nil {
			return err
		}
		return c.MultiClusterWatch(controller.Watch(&corev1.ConfigMap{}, controller.ToSelf, nil))
	}, func(c *Config) {
		// Time enough for an answer on a busy machine, or faults would be taken for slowness.
		c.Health.Timeout, c.Health.AwayTimeout, c.Health.AwayInterval = 3*time.Second, 3*time.Second, 500*time.Millisecond
		c.Clock = f.clock
		configure(c)
	})
	f.healthy, f.identity = "healthy-in-"+f.fixture.namespace, uuid.NewUUID()
	f.register(f.healthy, newFace(t, memberOne, f.identity).kubeconfig(t))
	f.Eventually(f.condition(f.healthy, flotillav1.ConditionReady)).Should(Equal("True Connected"))
	f.Eventually(func() int { return f.engaged.count(multicluster.ClusterName(f.healthy)) }).Should(Equal(1))
	return f
}

// reconcile reads an object live, as reconcilers do before they write.
func (f *fleetOfFaults) reconcile(ctx context.Context, pool *Pool, req clusters.Request) (reconcile.Result, error) {
	member, err := pool.Member(req.ClusterName)
	if err != nil {
		return reconcile.Result{}, err
	}
	object := &corev1.ConfigMap{}
	if err := member.GetAPIReader().Get(ctx, req.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	f.mu.Lock()
	f.seen[req.String()] = object.Data["value"]
	f.mu.Unlock()
	signal(f.passed)
	return reconcile.Result{}, nil
}

// react changes objects of the healthy member and returns how long the slowest pass took to come, and to see the change.
func (f *fleetOfFaults) react(t *testing.T, times int) time.Duration {
	t.Helper()
	ctx := context.Background()
	var slowest time.Duration
	for i := range times {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: fmt.Sprint("object-", i%3), Labels: map[string]string{flotillav1.LabelRedis: "cart"},
		}}
		value := string(uuid.NewUUID())
		object.Data = map[string]string{"value": value}
		started := time.Now()
		err := memberOne.Client.Update(ctx, object)
		if client.IgnoreNotFound(err) == nil && err != nil {
			err = memberOne.Client.Create(ctx, object)
		}
		if err != nil {
			t.Fatal(err)
		}
		request := clusters.Request{ClusterName: multicluster.ClusterName(f.healthy), Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}}
		giveUp := time.After(30 * time.Second)
		for f.saw(request) != value {
			select {
			case <-f.passed:
			case <-time.After(50 * time.Millisecond):
			case <-giveUp:
				t.Fatalf("no pass saw the change of %s", request)
			}
		}
		slowest = max(slowest, time.Since(started))
	}
	return slowest
}

func (f *fleetOfFaults) saw(request clusters.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[request.String()]
}

// cost is what the process holds.
type cost struct {
	goroutines int
	heap       uint64
}

// measure collects garbage first.
func measure() cost {
	runtime.GC()
	runtime.GC()
	stats := &runtime.MemStats{}
	runtime.ReadMemStats(stats)
	return cost{goroutines: runtime.NumGoroutine(), heap: stats.HeapAlloc}
}

// peak watches what is in use of the heap, until it is asked for the most that it was. Garbage does not count: how much
// there is before it is collected is up to the machine, and below the limit of memory to the runtime.
func peak(t *testing.T) func() uint64 {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	return mostOf(t, func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	})
}

// mostOf watches a value until it is asked for the most that it was.
func mostOf(t *testing.T, value func() uint64) func() uint64 {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan uint64, 1)
	go func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for most := uint64(0); ; {
			most = max(most, value())
			select {
			case <-ctx.Done():
				result <- most
				return
			case <-ticker.C:
			}
		}
	}()
	t.Cleanup(cancel)
	return func() uint64 { cancel(); return <-result }
}

// expectation is a condition and what it says.
type expectation struct{ condition, is string }

// faultCase is one row of the table.
type faultCase struct {
	name string
	// begin makes a member misbehave. It may be called before the member is registered.
	begin func(t *testing.T, s *clusterstest.Server)
	// atStart is what shows of a member that misbehaves when it is registered, and later of one that was engaged before.
	// Without one there is no such case.
	atStart, later expectation
	// leap is how much time passes before it shows later.
	leap time.Duration
	// heals says that the member is well again by itself once it behaves.
	heals bool
}

// fault misbehaves.
func fault(fault clusterstest.Fault) func(*testing.T, *clusterstest.Server) {
	return func(t *testing.T, s *clusterstest.Server) { s.Misbehave(t, fault) }
}

// unreadLeap is how long after a resource cannot be watched any more that shows.
const unreadLeap = transport.UnreadTime + sweepPause

// faultCases is the table. elsewhere is where redirects lead, and wellKnown the identity of the member that is well.
func faultCases(elsewhere *clusterstest.Server, wellKnown types.UID) []faultCase {
	reachable := func(reason string) expectation {
		return expectation{flotillav1.ConditionReachable, "False " + reason}
	}
	synced := func(reason string) expectation {
		return expectation{flotillav1.ConditionCachesSynced, "False " + reason}
	}
	served := func(reason string) expectation {
		return expectation{flotillav1.ConditionAPIsServed, "False " + reason}
	}
	accepted := func(reason string) expectation {
		return expectation{flotillav1.ConditionCredentialsAccepted, "False " + reason}
	}
	failed, late := reachable(flotillav1.ReasonProbeFailed), reachable(flotillav1.ReasonTimeout)
	over, refused := synced(flotillav1.ReasonLimitExceeded), accepted(flotillav1.ReasonUnauthorized)
	unsynced, stalled := synced(flotillav1.ReasonSyncTimeout), synced(flotillav1.ReasonWatchStalled)
	removeCRD := func(_ *testing.T, s *clusterstest.Server) {
		s.Remove(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "redises.flotilla.dev"}})
		s.Cut()
	}
	return []faultCase{
		{name: "refuses connections", begin: fault(clusterstest.Refuse()), atStart: failed, later: failed, heals: true},
		{name: "hangs before the handshake", begin: fault(clusterstest.HangBeforeHandshake()), atStart: late, later: late, heals: true},
		{name: "hangs after the handshake", begin: fault(clusterstest.Hang()), atStart: late, later: late, heals: true},
		{name: "answers byte by byte", begin: fault(clusterstest.Slow(2 * time.Second)), atStart: late, later: late, heals: true},
		{name: "answers 401", begin: fault(clusterstest.Status(http.StatusUnauthorized)), atStart: refused, later: refused, heals: true},
		{name: "answers 403", begin: fault(clusterstest.Status(http.StatusForbidden)), atStart: failed, later: failed, heals: true},
		{
			name: "allows nothing but to ask whether it is ready", begin: fault(clusterstest.Status(http.StatusForbidden, "/readyz")),
			atStart: served(flotillav1.ReasonForbidden),
		},
		{name: "answers 429", begin: fault(clusterstest.Status(http.StatusTooManyRequests)), atStart: failed, later: failed, heals: true},
		{name: "answers 500", begin: fault(clusterstest.Status(http.StatusInternalServerError)), atStart: failed, later: failed, heals: true},
		{
			name: "shows a wrong certificate", begin: fault(clusterstest.WrongCertificate()),
			atStart: reachable(flotillav1.ReasonTLSFailed), later: reachable(flotillav1.ReasonTLSFailed), heals: true,
		},
		{name: "redirects", begin: fault(clusterstest.Redirect(elsewhere.URL())), atStart: failed, later: failed, heals: true},
		{name: "lists without end", begin: fault(clusterstest.Endless(false)), atStart: over, later: over},
		{name: "sends a gzip bomb", begin: fault(clusterstest.Endless(true)), atStart: over, later: over},
		{name: "lists empty items", begin: fault(clusterstest.EmptyItems()), atStart: over, later: over},
		{name: "lists small objects without end", begin: fault(clusterstest.SmallObjects()), atStart: over, later: over},
		{name: "sends huge events", begin: fault(clusterstest.HugeEvents(1_000_000)), atStart: over, later: over},
		{name: "sends deep events", begin: fault(clusterstest.DeepEvents()), atStart: over, later: over},
		{name: "changes the capacity of a node", begin: fault(clusterstest.ChangingCapacity()), later: expectation{flotillav1.ConditionReady, "True Connected"}},
		{name: "sends changes without end", begin: fault(clusterstest.Restless()), later: over},
		{name: "sends malformed JSON", begin: fault(clusterstest.Garbage("application/json", `{"items":[{`)), atStart: unsynced, later: stalled, leap: unreadLeap, heals: true},
		{
			name: "sends malformed protobuf", begin: fault(clusterstest.Garbage("application/vnd.kubernetes.protobuf", "k8s\x00\xff\xff\xff")),
			atStart: unsynced, later: stalled, leap: unreadLeap, heals: true,
		},
		{
			name: "allows one resource less", begin: fault(clusterstest.Forbid("configmaps")), heals: true, leap: unreadLeap,
			atStart: served(flotillav1.ReasonForbidden), later: served(flotillav1.ReasonForbidden),
		},
		{name: "never ends the initial events", begin: fault(clusterstest.WithoutInitialEnd()), atStart: expectation{flotillav1.ConditionCachesSynced, "True " + flotillav1.ReasonSynced}},
		{name: "lacks a CRD", begin: removeCRD, atStart: served(flotillav1.ReasonCRDMissing), later: served(flotillav1.ReasonCRDMissing), leap: unreadLeap},
		{
			name: "is another cluster than before", later: accepted(flotillav1.ReasonIdentityChanged),
			begin: func(_ *testing.T, s *clusterstest.Server) { s.Identify("another"); s.Cut() },
		},
		{
			name: "says it is the healthy one", atStart: accepted(flotillav1.ReasonDuplicateCluster),
			begin: func(_ *testing.T, s *clusterstest.Server) { s.Identify(wellKnown) },
		},
		{
			name: "says its version in red", atStart: failed,
			begin: func(_ *testing.T, s *clusterstest.Server) { s.Version("v1.36.0\x1b[31m") },
		},
		{
			name: "has an identity of 1 MB", atStart: failed,
			begin: func(_ *testing.T, s *clusterstest.Server) { s.Identify(types.UID(strings.Repeat("x", 1<<20))) },
		},
		{name: "has watches that are silent", begin: fault(clusterstest.Silent()), later: stalled, leap: transport.StallTime + time.Second},
	}
}

// faultyMember is a row that is running.
type faultyMember struct {
	faultCase
	server *clusterstest.Server
	secret *corev1.Secret
}

// registerFaulty registers a fake for each row.
func (f *fleetOfFaults) registerFaulty(t *testing.T, prefix string, cases []faultCase, before func(*testing.T, *faultyMember)) []*faultyMember {
	t.Helper()
	members := make([]*faultyMember, 0, len(cases))
	for i, row := range cases {
		member := &faultyMember{faultCase: row, server: clusterstest.Start(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "theirs", Labels: map[string]string{flotillav1.LabelRedis: "cart"},
		}, Data: map[string]string{"value": "of a fake"}})}
		before(t, member)
		member.secret = f.register(fmt.Sprintf("%s-%d", prefix, i), member.server.Kubeconfig())
		members = append(members, member)
	}
	return members
}

// removeFaulty leaves nothing but the healthy member.
func (f *fleetOfFaults) removeFaulty(t *testing.T, members []*faultyMember) {
	t.Helper()
	for _, member := range members {
		f.Expect(client.IgnoreNotFound(hubCluster.Client.Delete(context.Background(), member.secret))).To(Succeed())
	}
	f.Eventually(func() int { return len(f.pool.Snapshots()) }).Should(Equal(1))
	for _, member := range members {
		member.server.Misbehave(t, clusterstest.Fault{})
	}
}

// cutOff begins a fault that shows in watches, and waits until these have been asked for in vain.
func (f *fleetOfFaults) cutOff(t *testing.T, member *faultyMember) {
	t.Helper()
	before := member.server.Requests()
	member.begin(t, member.server)
	f.Eventually(member.server.Requests).Should(BeNumerically(">", before+int64(len(kinds.Watched()))), member.name)
}

// heal ends faults and waits until nothing of them shows any more.
func (f *fleetOfFaults) heal(t *testing.T, members []*faultyMember) {
	t.Helper()
	for _, member := range members {
		member.server.Misbehave(t, clusterstest.Fault{})
	}
	f.clock.leap(recheckPause)
	for _, member := range members {
		for condition, well := range map[string]string{
			flotillav1.ConditionReady: "True Connected", flotillav1.ConditionCachesSynced: "True Synced", flotillav1.ConditionAPIsServed: "True AllServed",
		} {
			f.Eventually(f.condition(member.secret.Name, condition)).Should(Equal(well), member.name)
		}
	}
}

// TestFaults has all faulty members of a kind at once beside a healthy one, which is worse than each of them alone, and
// takes as long as the slowest one.
func TestFaults(t *testing.T) {
	f := startFaults(t, 4)
	elsewhere := clusterstest.Start(t)
	usual := f.react(t, 20)
	// A member that holds something up costs a deadline, which is 10 s. Less than that may be the CPU that the fakes take.
	bound := 10*usual + 3*time.Second
	before := measure()
	t.Logf("without a fault: the slowest reaction is %v, %d goroutines, %d KiB", usual, before.goroutines, before.heap>>10)

	// show checks what shows of a member, and that the healthy one does not suffer.
	show := func(t *testing.T, member *faultyMember, want expectation) {
		g := NewWithT(t)
		g.Eventually(f.condition(member.secret.Name, want.condition)).Should(Equal(want.is))
		if member.leap > 0 {
			// The watches of the healthy member were just as silent all the time that was leapt over, and are opened again.
			f.react(t, 1)
		}
		reaction := f.react(t, 5)
		for again := 0; reaction > bound && again < 2; again++ {
			// A busy machine is slow once; what a fault holds up is slow each time.
			reaction = f.react(t, 5)
		}
		if reaction > bound {
			t.Errorf("the healthy member's reaction took %v, %v without a fault", reaction, usual)
		}
		g.Expect(f.condition(f.healthy, flotillav1.ConditionReady)()).To(Equal("True Connected"))
		g.Expect(f.engaged.count(multicluster.ClusterName(f.healthy))).To(Equal(1))
	}
	// bounded checks what all cost together, and that nothing is left when they have gone.
	bounded := func(t *testing.T, members []*faultyMember, peak uint64) {
		held := measure()
		t.Logf("with %d faults: %d goroutines, %d KiB, at most %d KiB", len(members), held.goroutines, held.heap>>10, peak>>10)
		// An endless list and a bomb go on for as long as they are read: what they may cost is a list each.
		if peak > before.heap+uint64(len(members))*16<<20 {
			t.Errorf("the heap was at %d KiB for %d members, %d before", peak>>10, len(members), before.heap>>10)
		}
		if more := held.goroutines - before.goroutines; more > 150*len(members) {
			t.Errorf("%d goroutines more for %d members", more, len(members))
		}
		if held.heap > before.heap+uint64(len(members))*4<<20 {
			t.Errorf("%d KiB are held for %d members, %d before", held.heap>>10, len(members), before.heap>>10)
		}
		f.removeFaulty(t, members)
		f.Eventually(func(g Gomega) {
			left := measure()
			// The fakes listen until the test ends.
			g.Expect(left.goroutines).To(BeNumerically("<=", before.goroutines+10+len(members)))
			g.Expect(left.heap).To(BeNumerically("<=", before.heap+16<<20))
		}).WithPolling(500 * time.Millisecond).Should(Succeed())
	}

	rows := faultCases(elsewhere, f.identity)
	t.Run("at start", func(t *testing.T) {
		chosen := slices.DeleteFunc(slices.Clone(rows), func(row faultCase) bool { return row.atStart == expectation{} })
		most := peak(t)
		members := f.registerFaulty(t, "at-start", chosen, func(t *testing.T, m *faultyMember) { m.begin(t, m.server) })
		for _, member := range members {
			t.Run(member.name, func(t *testing.T) { show(t, member, member.atStart) })
		}
		bounded(t, members, most())
	})
	t.Run("later", func(t *testing.T) {
		chosen := slices.DeleteFunc(slices.Clone(rows), func(row faultCase) bool { return row.later == expectation{} })
		most := peak(t)
		members := f.registerFaulty(t, "later", chosen, func(*testing.T, *faultyMember) {})
		for _, member := range members {
			f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionReady)).Should(Equal("True Connected"))
			theirs := clusters.Request{ClusterName: multicluster.ClusterName(member.secret.Name)}
			theirs.NamespacedName = types.NamespacedName{Namespace: "default", Name: "theirs"}
			f.Eventually(func() string { return f.saw(theirs) }).Should(Equal("of a fake"))
		}
		for _, member := range members {
			// Watches that are silent must be open again before time passes; what cannot be read at all is tried again at once.
			if member.leap != unreadLeap {
				member.begin(t, member.server)
			}
		}
		for _, leap := range []time.Duration{0, unreadLeap, transport.StallTime + time.Second} {
			group := slices.DeleteFunc(slices.Clone(members), func(m *faultyMember) bool { return m.leap != leap })
			if leap == unreadLeap {
				for _, member := range group {
					f.cutOff(t, member)
				}
			}
			f.clock.leap(leap)
			for _, member := range group {
				t.Run(member.name, func(t *testing.T) { show(t, member, member.later) })
			}
			f.heal(t, slices.DeleteFunc(group, func(m *faultyMember) bool { return !m.heals }))
		}
		bounded(t, members, most())
	})
	if requests := elsewhere.Requests(); requests != 0 {
		t.Errorf("%d requests followed a redirect", requests)
	}
}

const (
	// mostForOne is what one hostile member may add to what is in use of the heap, what its fake needs included.
	mostForOne = 64 << 20
	// mostForThirty is what thirty of them may, so that the manager stays within its limit of 2 GiB.
	mostForThirty = 1 << 30
)

// hungryRows are members that try to exhaust the memory of the manager.
func hungryRows() []faultCase {
	return []faultCase{
		{name: "lists without end", begin: fault(clusterstest.Endless(false))},
		{name: "sends a gzip bomb", begin: fault(clusterstest.Endless(true))},
		{name: "lists empty items", begin: fault(clusterstest.EmptyItems())},
		{name: "lists small objects without end", begin: fault(clusterstest.SmallObjects())},
		{name: "sends huge events", begin: fault(clusterstest.HugeEvents(1_000_000))},
		{name: "sends events at the limit", begin: fault(clusterstest.HugeEvents(20_000))},
		{name: "sends deep events", begin: fault(clusterstest.DeepEvents())},
	}
}

// worldStops is the setting of the runtime with which it collects garbage while nothing else runs. Otherwise what is
// allocated during a collection counts as in use, which on a busy machine is more than what is measured.
const worldStops = "gcstoptheworld=1"

// TestFaults_memory has members that try to exhaust the memory of the manager: first one, then thirty at once. It does so
// in a process of its own, because the runtime reads its settings when it starts.
func TestFaults_memory(t *testing.T) {
	if !strings.Contains(os.Getenv("GODEBUG"), worldStops) {
		alone := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
		alone.Env = append(os.Environ(), "GODEBUG="+worldStops)
		out, err := alone.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Error(err)
		}
		return
	}
	f := startFaults(t, 4)
	// What is in use is known when garbage has been collected, so that has to happen often.
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	// Events at the limit are decoded one after the other, which may take too long.
	refused := MatchRegexp("False (LimitExceeded|SyncTimeout)")
	rows := hungryRows()
	begin := func(t *testing.T, m *faultyMember) { m.begin(t, m.server) }
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			before, most := measure(), peak(t)
			members := f.registerFaulty(t, fmt.Sprint("one-", i), []faultCase{row}, begin)
			for _, member := range members {
				f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionCachesSynced)).Should(refused)
			}
			needed := int64(most()) - int64(before.heap)
			f.removeFaulty(t, members)
			t.Logf("at most %d KiB more", needed>>10)
			if needed > mostForOne {
				t.Errorf("one member needs %d MiB", needed>>20)
			}
		})
	}
	t.Run("thirty at once", func(t *testing.T) {
		before, most := measure(), peak(t)
		thirty := make([]faultCase, 0, 30)
		for i := range cap(thirty) {
			thirty = append(thirty, rows[i%len(rows)])
		}
		for _, member := range f.registerFaulty(t, "thirty", thirty, begin) {
			f.Eventually(f.condition(member.secret.Name, flotillav1.ConditionCachesSynced)).Should(refused, member.name)
		}
		needed := int64(most()) - int64(before.heap)
		t.Logf("at most %d KiB more", needed>>10)
		if needed > mostForThirty {
			t.Errorf("they need %d MiB", needed>>20)
		}
	})
}
