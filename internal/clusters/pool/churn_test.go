// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/controller"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// usage is what the process holds beside what cost says.
type usage struct {
	cost
	descriptors, series, lanes int
}

// holding counts, after what is unreachable has been collected.
func holding(t *testing.T, controller string) usage {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	u := usage{}
	for _, family := range families {
		u.series += len(family.GetMetric())
	}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	u.descriptors = len(descriptors)
	ofQueue := fmt.Sprintf("controller=%q", controller)
	for _, line := range clusterstest.Series(t, ctrlmetrics.Registry) {
		if strings.HasPrefix(line, "flotilla_queue_depth") && strings.Contains(line, ofQueue) {
			u.lanes++
		}
	}
	u.cost = measure()
	return u
}

// createdBy matches the end of a stack.
var createdBy = regexp.MustCompile(`created by (\S+)`)

// goroutinesBySite says, for a person who looks for a leak, what started the goroutines that are there.
func goroutinesBySite() string {
	buffer := make([]byte, 32<<20)
	counts := map[string]int{}
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		site := "main"
		if found := createdBy.FindStringSubmatch(stack); found != nil {
			site = found[1]
		}
		counts[site]++
	}
	sites := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return counts[b] - counts[a] })
	var text strings.Builder
	for _, site := range sites[:min(len(sites), 15)] {
		fmt.Fprintf(&text, "%6d %s\n", counts[site], site)
	}
	return text.String()
}

// churner has members join and leave.
type churner struct {
	*fixture
	servers  []*clusterstest.Server
	refusing []byte
}

// turn has a member join and leave when it is in the state that is wanted.
func (c *churner) turn(name string, kubeconfig []byte, want clusters.State) {
	const patience, poll = time.Minute, 2 * time.Millisecond
	secret := testenv.SecretFor(memberOne, c.namespace, name)
	secret.Data[flotillav1.KeyKubeconfig] = kubeconfig
	c.Expect(hubCluster.Client.Create(context.Background(), secret)).To(Succeed())
	c.Eventually(c.state(name), patience, poll).Should(Equal(want), name)
	c.Expect(hubCluster.Client.Delete(context.Background(), secret)).To(Succeed())
	registered := func() bool { _, found := c.pool.Snapshot(multicluster.ClusterName(name)); return found }
	c.Eventually(registered, patience, poll).Should(BeFalse(), name)
}

// churnMembers is how many members come and go, and one in churnEngages is engaged; the others do not get that far. The
// drill has 1,000, and all of them engaged.
var churnMembers, churnEngages = 300, 4

// turns has members come and go, as many at once as there are servers. Those that are not engaged are refused for what
// their Secrets hold, or refuse connections.
func (c *churner) turns(from, to int) {
	numbers := make(chan int)
	var workers sync.WaitGroup
	for _, server := range c.servers {
		workers.Go(func() {
			for n := range numbers {
				switch name := fmt.Sprint("churn-", n); {
				case n%churnEngages == 0:
					c.turn(name, server.Kubeconfig(), clusters.StateReady)
				case n%2 == 0:
					c.turn(name, []byte("garbage: ["), clusters.StateInvalid)
				default:
					c.turn(name, c.refusing, clusters.StateConnecting)
				}
			}
		})
	}
	for n := from; n < to; n++ {
		numbers <- n
	}
	close(numbers)
	workers.Wait()
}

// TestPool_does_not_grow_when_members_come_and_go has members join and leave, some engaged with all their caches. What is
// held afterwards is compared with what was held after the first 100: there is no room for a trace of each member.
func TestPool_does_not_grow_when_members_come_and_go(t *testing.T) {
	const queue, warm = "churn-test", 100
	all := churnMembers
	f := startPoolWith(t, hubCluster.Namespace(t), func(mgr mcmanager.Manager, pool *Pool) error {
		created, err := controller.New(queue, mgr, pool, 4, reconcile.TypedFunc[clusters.Request](
			func(context.Context, clusters.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
		if err != nil {
			return err
		}
		return created.MultiClusterWatch(controller.Watch(&corev1.Node{}, controller.ToSelf, nil))
	})
	dead := clusterstest.Start(t)
	dead.Misbehave(t, clusterstest.Refuse())
	c := &churner{fixture: f, refusing: dead.Kubeconfig()}
	for range 12 {
		c.servers = append(c.servers, clusterstest.Start(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "churned"}}))
	}
	c.turns(0, warm)
	before := holding(t, queue)
	began := time.Now()
	c.turns(warm, all)
	t.Logf("%d members came and went in %s", all-warm, time.Since(began))

	var after usage
	f.Eventually(func(g Gomega) {
		after = holding(t, queue)
		g.Expect(after.goroutines).To(BeNumerically("<=", before.goroutines+30))
		g.Expect(after.descriptors).To(BeNumerically("<=", before.descriptors+10))
		g.Expect(after.series).To(BeNumerically("<=", before.series+20))
		g.Expect(after.lanes).To(BeZero())
		// client-go keeps each event for some minutes, which is a few KB; the caches of one member are some 200 KB.
		g.Expect(after.heap).To(BeNumerically("<=", before.heap+20<<20))
	}).WithPolling(500*time.Millisecond).Should(Succeed(), goroutinesBySite)
	t.Logf("after %d members: %+v; after %d: %+v", warm, before, all, after)
	f.pool.mu.RLock()
	f.Expect(f.pool.owners).To(BeEmpty())
	f.pool.mu.RUnlock()
	for n := 0; n < all; n += churnEngages {
		f.Expect(f.engaged.count(multicluster.ClusterName(fmt.Sprint("churn-", n)))).To(Equal(1), "each of them was engaged")
	}
	left := &flotillav1.MemberClusterList{}
	f.Expect(hubCluster.Client.List(context.Background(), left)).To(Succeed())
	for _, object := range left.Items {
		f.Expect(object.Name).NotTo(HavePrefix("churn-"))
	}
	for _, n := range []int{0, 2, 3, all - 4, all - 1} {
		f.Expect(named(t, fmt.Sprint("churn-", n))).To(BeEmpty())
	}
}
