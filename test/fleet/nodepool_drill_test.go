// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
)

const (
	// largeMember is where the large pool is, with so many nodes besides those of the fleet.
	largeMember = "member-1"
	largePool   = 1000
	// heartbeatTime is how long the simulated kubelets' heartbeats are counted.
	heartbeatTime = 10 * time.Minute
	// largePatience is how long a change of all its nodes may take, also after kills that have left changes behind.
	largePatience = 5 * time.Minute
	// killedTimes is how often the manager is killed in the middle of a change.
	killedTimes = 20
)

func init() { writersTime = time.Minute }

// TestLargePoolDrill has a fleet of its own with a pool of 1,000 nodes.
func TestLargePoolDrill(t *testing.T) {
	runScenarios(t, start(t, 3), []scenario{
		{"MembersJoin", membersJoin},
		{"ObjectsArePlacedAndAddedUp", placedAndAddedUp},
		{"NodePoolsAndTheirNodes", nodePools},
		{"AThousandNodesJoin", thousandNodesJoin},
		{"AChangedLabelIsOnePatchForEachNode", oneLabelChanges},
		{"TokenRotatesInTheMiddleOfAChange", tokenRotatesInTheMiddle},
		{"ARestartWritesNothing", restartWritesNothing},
		{"HeartbeatsCostNothing", heartbeatsCostNothing},
		{"ManagerIsKilledInTheMiddleOfAChange", killedInTheMiddle},
		{"DeletionOnTheHubCleansTheMembers", deletion},
	})
}

// thousandNodesJoin adds nodes to the pool of the fleet.
func thousandNodesJoin(t *testing.T, f *fleet) {
	var working sync.WaitGroup
	const workers = 8
	for worker := range workers {
		working.Go(func() {
			for i := worker; i < largePool; i += workers {
				node := extraNode(fmt.Sprintf("large-%04d", i), map[string]string{"example.com/group": "web"})
				if err := client.IgnoreAlreadyExists(f.members[largeMember].Create(f.ctx, node)); err != nil {
					t.Errorf("creating a node: %v", err)
					return
				}
			}
		})
	}
	working.Wait()
	NewWithT(t).Eventually(func(g Gomega) {
		pool := f.memberPool(largeMember)
		g.Expect(pool.Status.NodeCount).To(BeNumerically(">", largePool))
		g.Expect(pool.Status.ReadyNodes).To(Equal(pool.Status.NodeCount))
	}, 15*time.Minute, time.Second).Should(Succeed(), "the simulated kubelets have made all nodes ready")
	f.appliedToAll(t)
	f.settled(t, largeMember)
}

// appliedToAll waits until every node of the large pool carries what the pool wants.
func (f *fleet) appliedToAll(t *testing.T) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		hub, pool := f.hubPool(), f.memberPool(largeMember)
		g.Expect(pool.Spec.Labels).To(Equal(hub.Spec.Labels))
		g.Expect(pool.Status.ObservedGeneration).To(Equal(pool.Generation))
		g.Expect(pool.Status.UpdatedNodes).To(Equal(pool.Status.NodeCount))
		g.Expect(pool.Status.Status).To(Equal(int32(200)), "%+v", pool.Status.Conditions)
	}, largePatience, 500*time.Millisecond).Should(Succeed())
}

func oneLabelChanges(t *testing.T, f *fleet) {
	g, size := NewWithT(t), int(f.memberPool(largeMember).Status.NodeCount)
	f.settled(t, largeMember)
	asked := f.audit(t, largeMember)
	g.Expect(f.setRevision(f.ctx, "counted")).To(Succeed())
	f.appliedToAll(t)
	f.settled(t, largeMember)
	g.Expect(asked.requests(t, nodePatch)).To(HaveLen(size), "one accepted patch for each node")
	status := asked.requests(t, func(r request) bool {
		return r.write() && r.ObjectRef.Resource == "nodepools" && r.ObjectRef.Subresource == "status"
	})
	g.Expect(len(status)).To(BeNumerically("<=", 3), "status writes: %v", status)
}

// nodePatch says whether the request changed a node.
func nodePatch(r request) bool {
	return r.Verb == "patch" && r.ObjectRef.Resource == "nodes" && r.ResponseStatus.Code < 300
}

// tokenRotatesInTheMiddle gives the manager another token and revokes the one in use while a change goes to all nodes.
func tokenRotatesInTheMiddle(t *testing.T, f *fleet) {
	g, size := NewWithT(t), int(f.memberPool(largeMember).Status.NodeCount)
	first := f.boundToken(t, largeMember)
	f.use(t, first)
	f.settled(t, largeMember)
	asked, second := f.audit(t, largeMember), f.boundToken(t, largeMember)
	g.Expect(f.setRevision(f.ctx, "rotated")).To(Succeed())
	g.Eventually(func() int { return f.changedNodes(t, "rotated") }, time.Minute, 20*time.Millisecond).Should(BeNumerically(">=", largePool/10))
	f.use(t, second)
	changed := f.changedNodes(t, "rotated")
	f.revoke(t, first)
	g.Expect(changed).To(BeNumerically("<", size), "the token was rotated in the middle of the change")
	f.appliedToAll(t)
	f.settled(t, largeMember)
	g.Expect(asked.requests(t, nodePatch)).To(HaveLen(size), "one accepted patch for each node")
	g.Expect(asked.requests(t, request.relist)).To(BeEmpty(), "nothing is listed again")
	f.register(t, largeMember, "eu")
}

func restartWritesNothing(t *testing.T, f *fleet) {
	g := NewWithT(t)
	f.settled(t, largeMember)
	asked := f.audit(t, largeMember)
	f.stopManager(t)
	f.startManager(t)
	g.Eventually(func() []string { return asked.requests(t, request.relist) }, 2*time.Minute, time.Second).ShouldNot(BeEmpty(), "the new manager reads the member")
	g.Eventually(func() string { return conditionStatus(f.memberCluster(largeMember).Status.Conditions, "Ready") }, time.Minute, time.Second).Should(Equal("True"))
	f.settled(t, largeMember)
	g.Expect(asked.requests(t, request.write)).To(BeEmpty(), "writes after a restart")
}

// heartbeatsCostNothing counts what the manager writes while simulated kubelets beat. Control planes write to nodes for
// minutes after they came, and give up on Deployments that get no Pod, so that their writes are not counted.
func heartbeatsCostNothing(t *testing.T, f *fleet) {
	g, asked := NewWithT(t), map[string]audit{}
	f.settled(t, largeMember)
	for _, name := range append(f.registered(), "hub") {
		asked[name] = f.audit(t, name)
	}
	versions := f.nodeVersions(t)
	select {
	case <-time.After(heartbeatTime):
	case <-f.ctx.Done():
	}
	// client-go ends a series of events minutes after the last one of them.
	write := func(r request) bool { return r.write() && (r.ObjectRef.Resource != "events" || r.Verb != "patch") }
	for name, asked := range asked {
		g.Expect(asked.requests(t, write)).To(BeEmpty(), "writes to %s while nodes beat", name)
	}
	beaten := 0
	for name, version := range f.nodeVersions(t) {
		if versions[name] != version {
			beaten++
		}
	}
	g.Expect(beaten).To(BeNumerically(">", largePool/2), "the nodes were heard of meanwhile")
	t.Logf("%d nodes beat in %v, and nothing was written", beaten, heartbeatTime)
}

func (f *fleet) nodeVersions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, node := range f.nodes(largeMember) {
		out[node.Name] = node.ResourceVersion
	}
	return out
}

// killedInTheMiddle kills the manager when a random part of the nodes has a change, and does so again with the next.
func killedInTheMiddle(t *testing.T, f *fleet) {
	g := NewWithT(t)
	f.expectConvergedWithin(t, largePatience, largeMember)
	f.appliedToAll(t)
	f.settled(t, largeMember)
	world := f.largeWorld(t)
	for kill := range killedTimes {
		value := fmt.Sprintf("kill-%d", kill)
		enough := 1 + rand.IntN(largePool-1)
		g.Expect(f.setRevision(f.ctx, flotillav1.LabelValue(value))).To(Succeed())
		var changed int
		g.Eventually(func() int {
			changed = f.changedNodes(t, value)
			return changed
		}, 2*time.Minute, 20*time.Millisecond).Should(BeNumerically(">=", enough))
		f.killManager()
		t.Logf("Kill %d came when %d nodes were changed", kill+1, changed)
		f.freeLease(t)
		f.startManager(t)
	}
	f.expectConvergedWithin(t, largePatience, largeMember)
	f.appliedToAll(t)
	f.settled(t, largeMember)
	after := f.largeWorld(t)
	for what := range after {
		if strings.Contains(after[what], "kill-") {
			t.Errorf("%s kept something of a change that is over: %s", what, after[what])
		}
	}
	g.Expect(cmp.Diff(world, after)).To(BeEmpty(), "everything is as before the kills")
}

// largeWorld describes the nodes of the large pool, apart from what the control plane itself says of their health.
func (f *fleet) largeWorld(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, node := range f.nodes(largeMember) {
		taints := slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return strings.HasPrefix(taint.Key, "node.kubernetes.io/") })
		out[node.Name] = fmt.Sprint(node.UID, node.Labels, node.Annotations, taints)
	}
	return out
}

// changedNodes counts the nodes that have the revision.
func (f *fleet) changedNodes(t *testing.T, revision string) int {
	t.Helper()
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := f.members[largeMember].List(f.ctx, nodes, client.MatchingLabels{"example.com/revision": revision}); err != nil {
		t.Fatal(err)
	}
	return len(nodes.Items)
}
