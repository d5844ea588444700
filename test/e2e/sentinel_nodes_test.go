// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

// What docs/redis.md promises when a node is lost: until the others take over, and until the primary on it refuses writes.
const (
	takeover = 9 * time.Second
	fence    = 7 * time.Second
)

// nodeScenarios are about the nodes below a Redis in mode Sentinel. Each Pod that votes is on one of its own.
var nodeScenarios = []scenario{
	{name: "nodes: primary Pod deleted under load", run: deleteSentinelPrimary, machines: true},
	{name: "nodes: the primary's node loses power", run: losePower, machines: true},
	{name: "nodes: the primary's node is cut off, clients on it", run: cutNode, machines: true},
	{name: "nodes: cut off together with a read replica", run: cutNodeWithReplica, machines: true},
	{name: "nodes: every node drained", run: drainNodes, machines: true},
}

// TestSentinelNodes breaks the nodes of a Redis in mode Sentinel.
func TestSentinelNodes(t *testing.T) {
	sentinelNodes(t, "e2e-nodes", "", func(*world) func(*testing.T) { return func(*testing.T) {} })
}

// TestSentinelNodesWithoutManager is the same, but the manager is killed in the middle of every scenario.
func TestSentinelNodesWithoutManager(t *testing.T) {
	sentinelNodes(t, "e2e-nodes-killed", ", manager killed", func(w *world) func(*testing.T) { return w.killManager })
}

func sentinelNodes(t *testing.T, namespace, how string, whenBroken func(*world) func(*testing.T)) {
	t.Helper()
	w := connect(t)
	w.mustHaveProxy(t, "nodes of mode Sentinel"+how, w.proxy)
	var nodes corev1.NodeList
	if err := w.members[0].List(t.Context(), &nodes); err != nil {
		t.Fatalf("listing the nodes: %v", err)
	}
	if len(nodes.Items) < 3 {
		notRun(t, "nodes of mode Sentinel"+how, "the first member has fewer than three nodes: E2E_NODES=3")
	}
	r := w.create(t, namespace, w.members[:1], flotillav1.RedisSpec{
		Image: w.image, Replicas: new(int32(3)), Mode: flotillav1.RedisModeSentinel, Proxy: &flotillav1.RedisProxy{Image: w.proxy},
	})
	runAll(t, nodeScenarios, story{instance: r, whenBroken: whenBroken(w), full: true}, how)
	t.Run("no password anywhere", r.noPasswordAnywhere)
	r.remove(t)
}

// spread returns the machines of the Pods by the Pods' names, each another one.
func (s *story) spread(t *testing.T) map[string]string {
	t.Helper()
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	machines, taken := map[string]string{}, map[string]bool{}
	for name, pod := range pods {
		machines[name], taken[machineOf(pod)] = machineOf(pod), true
	}
	if len(taken) != 3 {
		t.Fatalf("the Pods are not on nodes of their own: %v", machines)
	}
	return machines
}

// apart is the Redis as clients on a machine see it. They know the address of the Service.
func (s *story) apart(t *testing.T, machine string) *instance {
	t.Helper()
	// Each of them has keys of its own.
	s.writers++
	apart := *s.instance
	var err error
	if apart.address, err = s.serviceAddress(t.Context()); err != nil {
		t.Fatal(err)
	}
	apart.from = machine
	return &apart
}

// damage is what can happen to a machine, in the words of hack/e2e.sh. Whether its containers start again tells when it is back.
type damage struct {
	do, undo string
	restarts bool
}

var (
	powerLoss = damage{do: "stop", undo: "start", restarts: true}
	partition = damage{do: "unplug", undo: "plug"}
)

// losePower ends everything on the primary's node at once, and starts it half a minute later.
func losePower(t *testing.T, s *story) {
	for i := range s.often(2, 10) {
		s.breakNode(t, powerLoss, i == 0, nil)
	}
}

// cutNode pulls the cable of the primary's node, with clients on it: the primary soon refuses what they write, and only that may
// be lost.
func cutNode(t *testing.T, s *story) {
	for i := range s.often(2, 5) {
		s.breakNode(t, partition, i == 0, s.writeInside)
	}
}

// cutNodeWithReplica does so while a read replica is on the same node. It does not vote, so the primary refuses writes all the
// same.
func cutNodeWithReplica(t *testing.T, s *story) {
	s.scaleTo(t, 4)
	s.settle(t)
	var replica corev1.Pod
	s.get(t, podName(3), &replica)
	for i := range s.often(2, 5) {
		s.leadOn(t, machineOf(replica))
		s.breakNode(t, partition, i == 0, s.writeInside)
	}
	s.scaleTo(t, 3)
	s.settle(t)
}

// leadOn deletes the Pod of the primary until the next one is on a certain machine: nobody chooses who takes over.
func (s *story) leadOn(t *testing.T, machine string) {
	t.Helper()
	for range 20 {
		primary, failovers := s.leader(t)
		if s.spread(t)[primary] == machine {
			return
		}
		s.drop(t, &corev1.Pod{}, primary)
		s.awaitFailovers(t, failovers+1)
		s.settle(t)
	}
	t.Fatalf("no primary on %s", machine)
}

// writeInside starts clients on a machine that is about to be cut off. The function that it returns ends them before the
// machine is back, and says how long they could write.
func (s *story) writeInside(t *testing.T, machine string) (stop func(since time.Time)) {
	t.Helper()
	w := s.apart(t, machine).startWriter(t)
	w.awaitWrites(t)
	return func(since time.Time) {
		w.cancel()
		w.done.Wait()
		until := w.last.Sub(since)
		s.tell("writes inside until %.1fs", until.Seconds())
		if until > fence {
			t.Errorf("the primary that was cut off took writes for %s, want %s at most", until, fence)
		}
	}
}

// breakNode breaks the primary's node for half a minute. Clients on another node go on with the next primary.
func (s *story) breakNode(t *testing.T, how damage, first bool, inside func(t *testing.T, machine string) (stop func(since time.Time))) {
	t.Helper()
	machines := s.spread(t)
	primary, failovers := s.leader(t)
	var elsewhere string
	for _, machine := range machines {
		if machine != machines[primary] {
			elsewhere = max(elsewhere, machine)
		}
	}
	w := s.apart(t, elsewhere).startWriter(t)
	w.awaitWrites(t)
	stop := func(time.Time) {}
	if inside != nil {
		stop = inside(t, machines[primary])
	}
	before := s.identities(t, s.member)[primary]
	w.takeLongest()
	began := time.Now()
	s.machine(t, how.do, machines[primary])
	if first {
		s.whenBroken(t)
	}
	time.Sleep(time.Until(began.Add(30 * time.Second)))
	w.awaitWrites(t)
	outage := w.takeLongest()
	stop(began)
	s.machine(t, how.undo, machines[primary])
	if how.restarts {
		s.awaitTouched(t, map[string]string{primary: before})
	}
	s.awaitFailovers(t, failovers+1)
	s.settle(t)
	w.awaitWrites(t)
	s.stopWriter(w)
	lost := s.check(t)
	s.tell("outage %.1fs, %d writes acknowledged, %d lost", outage.Seconds(), w.total(), lost)
	if outage > takeover {
		t.Errorf("writes failed for %s, want %s at most", outage, takeover)
	}
	s.mustLoseAtMost(t, lost, crashLoss)
	s.mustHaveOnePrimary(t)
}

// mustHaveOnePrimary asks every server who it is.
func (s *story) mustHaveOnePrimary(t *testing.T) {
	t.Helper()
	pods, err := s.pods(t.Context(), s.member)
	if err != nil {
		t.Fatal(err)
	}
	var primaries []string
	for name, pod := range pods {
		c := s.dialPod(pod)
		info, err := c.Info(t.Context(), "replication").Result()
		_ = c.Close()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(info, "role:master") {
			primaries = append(primaries, name)
		}
	}
	if len(primaries) != 1 {
		t.Errorf("the primaries are %v, want one", primaries)
	}
}

// drainNodes drains one node after the other, as kubectl drain does: the primary changes when it is its turn, and only then.
func drainNodes(t *testing.T, s *story) {
	var nodes corev1.NodeList
	if err := s.member.List(t.Context(), &nodes); err != nil {
		t.Fatalf("listing the nodes: %v", err)
	}
	s.mustKeepAll(t, func(w *writer) {
		_, before := s.leader(t)
		want := before
		for i, node := range nodes.Items {
			s.cordon(t, node.Name, true)
			pods, err := s.pods(t.Context(), s.member)
			if err != nil {
				t.Fatal(err)
			}
			for name, pod := range pods {
				if pod.Spec.NodeName != node.Name {
					continue
				}
				if primary, _ := s.leader(t); primary == name {
					want++
				}
				s.evict(t, pod)
				if i == 0 {
					s.whenBroken(t)
				}
				s.awaitReplaced(t, name, pod.UID)
				s.settle(t)
			}
			s.cordon(t, node.Name, false)
			s.awaitFailovers(t, want)
			w.awaitWrites(t)
		}
		if _, after := s.leader(t); after != want {
			t.Errorf("the primary changed %d times, want %d", after-before, want-before)
		}
	})
}

func (s *story) cordon(t *testing.T, name string, unschedulable bool) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable))
	if err := s.member.Patch(t.Context(), node, patch); err != nil {
		t.Fatalf("cordoning node %q: %v", name, err)
	}
}

// evict has a Pod go as kubectl drain does: the disruption budget decides when.
func (s *story) evict(t *testing.T, pod corev1.Pod) {
	t.Helper()
	eventually(t, settleTime, pod.Name+" may go", func(ctx context.Context) error {
		eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}}
		return s.member.SubResource("eviction").Create(ctx, &pod, eviction)
	})
}
