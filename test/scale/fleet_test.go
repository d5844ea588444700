// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/placement"
	"github.com/flotilla-dev/flotilla/internal/reconcilers/rollup"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// workers is how many passes of a controller run at once: as many as the test's hub can use.
const workers = 8

// world is a hub with members in memory and objects that are placed in all of them.
type world struct {
	testing.TB
	directory *directory
	hub       client.Client
	namespace string
	// members and objects are how many there are; one object of ten is a NodePool.
	members, objects int
	// placedAt is when the first object was created, settledAt when the hub said that all are ready everywhere.
	placedAt, settledAt time.Time
	// stop ends the manager, and returns when it has ended. It may be called again.
	stop func()

	mu sync.Mutex
	// latest is each hub object as a watch has shown it last, written counts its versions, and wrong lists those that did not
	// add up.
	latest  map[string]fleet.Object
	written map[string]int
	wrong   []string
}

// startWorld places the objects, and returns when the hub says that all of them are ready everywhere.
func startWorld(t testing.TB, members, objects int) *world {
	t.Helper()
	server := testenv.Start(t)
	config := rest.CopyConfig(server.Config)
	config.QPS = -1
	names := make([]string, 0, members)
	for i := range members {
		names = append(names, fmt.Sprintf("member-%04d", i))
	}
	w := &world{
		TB: t, directory: newDirectory(names), hub: server.Client, namespace: server.Namespace(t),
		members: members, objects: objects, latest: map[string]fleet.Object{}, written: map[string]int{},
	}
	w.runManager(config, names)
	w.placedAt = time.Now()
	for i := range objects {
		if err := w.hub.Create(context.Background(), w.object(i)); err != nil {
			t.Fatal(err)
		}
	}
	g := NewWithT(t)
	g.Eventually(w.unsettled, 20*time.Minute, 100*time.Millisecond).WithArguments(int32(0)).Should(BeEmpty(), "all objects are ready everywhere")
	w.settledAt = time.Now()
	return w
}

// runManager starts placement and roll-up as the manager does.
func (w *world) runManager(restConfig *rest.Config, names []string) {
	w.Helper()
	g := NewWithT(w)
	ctx, stop := context.WithCancel(context.Background())
	mgr, err := mcmanager.New(restConfig, nil, ctrl.Options{
		Scheme: testenv.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	g.Expect(err).NotTo(HaveOccurred())
	table := fleet.NewTable()
	g.Expect(placement.Setup(mgr, w.directory, table, placement.Options{HubID: "hub", CreateNamespaces: true}, workers)).To(Succeed())
	g.Expect(rollup.Setup(mgr, w.directory, table, "hub", clock.RealClock{}, workers)).To(Succeed())
	for _, object := range []client.Object{&flotillav1.Redis{}, &flotillav1.NodePool{}} {
		informer, err := mgr.GetLocalManager().GetCache().GetInformer(ctx, object)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: w.watched})
		g.Expect(err).NotTo(HaveOccurred())
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stop = sync.OnceFunc(func() {
		stop()
		g.Expect(<-done).To(Succeed())
	})
	w.Cleanup(w.stop)
	joining, creating := errgroup.WithContext(ctx)
	joining.SetLimit(16)
	for _, name := range names {
		joining.Go(func() error {
			return w.hub.Create(creating, &flotillav1.MemberCluster{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": "eu"}},
				Spec:       flotillav1.MemberClusterSpec{SecretRef: flotillav1.SecretReference{Namespace: "flotilla-clusters", Name: name}},
			})
		})
	}
	g.Expect(joining.Wait()).To(Succeed())
	for _, name := range names {
		g.Expect(mgr.Engage(ctx, multicluster.ClusterName(name), w.directory.members[multicluster.ClusterName(name)])).To(Succeed())
	}
}

func (w *world) object(i int) client.Object {
	everywhere := &flotillav1.Placement{ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}
	if i%10 == 9 {
		return &flotillav1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pool-%03d", i)}, Spec: flotillav1.NodePoolSpec{
			Placement: everywhere, NodeSelector: &flotillav1.NodeSelector{MatchLabels: map[string]flotillav1.LabelValue{"example.com/group": "web"}},
		}}
	}
	return &flotillav1.Redis{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("cache-%03d", i)},
		Spec:       flotillav1.RedisSpec{Placement: everywhere, Replicas: new(int32(3))},
	}
}

// watched counts a version of a hub object. Every one of them has to add up.
func (w *world) watched(_, now any) {
	object := now.(fleet.Object)
	counts := object.GetFleetStatus().ClusterCounts
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latest[object.GetName()] = object
	w.written[object.GetName()]++
	if counts != nil && counts.Ready+counts.NotReady+counts.Unknown != counts.Desired {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %+v", object.GetName(), *counts))
	}
}

// writes sums the versions seen so far.
func (w *world) writes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := 0
	for _, count := range w.written {
		sum += count
	}
	return sum
}

// unsettled lists the hub objects whose status is not what is true of the members, so many of which cannot be seen.
func (w *world) unsettled(away int32) []string {
	there := int32(w.members) - away
	want := flotillav1.ClusterCounts{Desired: int32(w.members), Applied: int32(w.members), Ready: there, Unknown: away}
	var wrong []string
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, object := range w.latest {
		settled := object.GetFleetStatus().ClusterCounts != nil && *object.GetFleetStatus().ClusterCounts == want &&
			apimeta.IsStatusConditionTrue(*object.GetConditions(), flotillav1.ConditionFullyReady) == (away == 0)
		switch object := object.(type) {
		case *flotillav1.Redis:
			settled = settled && object.Status.Replicas == 3*there
		case *flotillav1.NodePool:
			settled = settled && object.Status.NodeCount == 2*there && object.Status.Allocatable.Cpu().Value() == 4*int64(there)
		}
		if !settled {
			wrong = append(wrong, fmt.Sprintf("%s: %+v", name, object.GetFleetStatus().ClusterCounts))
		}
	}
	if len(w.latest) != w.objects {
		wrong = append(wrong, fmt.Sprintf("%d objects", len(w.latest)))
	}
	slices.Sort(wrong)
	return wrong[:min(len(wrong), 5)]
}

// cost is what a storm has led to.
type cost struct {
	transitions int
	// during and after are the writes until the last transition, and from then on until all is settled.
	during, after int
	// cpu is what the process has spent, and settled how long after the last transition all was true.
	cpu, settled time.Duration
}

func (c cost) String() string {
	return fmt.Sprintf("%d transitions: %d writes and %d after the last one, settled after %v, %v of CPU for a transition",
		c.transitions, c.during, c.after, c.settled.Round(time.Millisecond), (c.cpu / time.Duration(c.transitions)).Round(time.Microsecond))
}

// rest waits until nothing is left of the start: neither summaries to write nor passes that find nothing to do.
func (w *world) rest() {
	w.Helper()
	g := NewWithT(w)
	g.Eventually(w.uncounted, 10*time.Minute, time.Second).Should(BeZero(), "the summary of each member counts all objects")
	last := cpuTime(w)
	g.Eventually(func() time.Duration {
		spent := cpuTime(w) - last
		last += spent
		return spent
	}, 10*time.Minute, time.Second).Should(BeNumerically("<", 100*time.Millisecond), "the manager comes to rest")
}

// uncounted counts the members whose summary does not have all objects yet.
func (w *world) uncounted(g Gomega) int {
	var list flotillav1.MemberClusterList
	g.Expect(w.hub.List(context.Background(), &list)).To(Succeed())
	uncounted := 0
	for i := range list.Items {
		summary := list.Items[i].Status.Summary
		if summary == nil || int(summary.Redises.Ready+summary.NodePools.Ready) != w.objects {
			uncounted++
		}
	}
	return uncounted
}

// storm waits until the manager is at rest, has members go away and come back, evenly over a time, and waits until the hub
// says how they are in the end.
func (w *world) storm(transitions int, over time.Duration) cost {
	w.Helper()
	random := rand.New(rand.NewPCG(1, uint64(transitions)))
	states := map[clusters.State]clusters.State{clusters.StateReady: clusters.StateUnreachable, clusters.StateUnreachable: clusters.StateReady}
	w.rest()
	writes, cpu := w.writes(), cpuTime(w)
	pace := time.NewTicker(over / time.Duration(transitions))
	defer pace.Stop()
	for range transitions {
		<-pace.C
		name := fmt.Sprintf("member-%04d", random.IntN(w.members))
		snapshot, _ := w.directory.Snapshot(multicluster.ClusterName(name))
		w.directory.become(name, states[snapshot.State])
	}
	last, during := time.Now(), w.writes()-writes
	settle := NewWithT(w).Eventually(w.unsettled, time.Minute, 20*time.Millisecond).WithArguments(w.directory.away())
	settle.Should(BeEmpty(), "the hub says how the members are")
	settled := time.Since(last)
	return cost{transitions: transitions, during: during, after: w.writes() - writes - during, cpu: cpuTime(w) - cpu, settled: settled}
}

// cpuTime is what this process has spent. The hub's API server is another one.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
